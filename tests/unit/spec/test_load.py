"""A spec file and `--set` pairs become one JobSpec, or a message that names key, place, what was given and allowed."""

import functools
from pathlib import Path

import pytest
import yaml

from rayhier import run
from rayhier.spec import InputError, load
from rayhier.spec.corpus import Judgements
from rayhier.spec.removed import GONE, INSTEAD
from rayhier.spec.search import SearchSpec

SMALLEST = """\
name: a
workdir: runs/a
corpus: {type: beir, path: data/a}
encoder: {model: models/a}
router: {type: learned_ivf}
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """`file(TEXT)` writes ./spec.yaml and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        Path("spec.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
        return "spec.yaml"

    return write


ADDED = {
    "train: {epoch: 3}": ["spec.yaml:6: train.epoch: got 3; allowed: objective, epochs", "(did you mean epochs?)"],
    "corpuss: x": ["spec.yaml:6: corpuss: got 'x'", "did you mean corpus?"],
    "train:\n  epochs: many": ["spec.yaml:7: train.epochs: got 'many'; allowed: a whole number"],
    "train: {epochs: 1.5}": ["train.epochs: got 1.5; allowed: a whole number"],
    "train: {encoder_lr: .nan}": ["train.encoder_lr: got nan; allowed: a finite"],
    "search: {beam: {recall: 2}}": ["spec.yaml:6: search.beam.recall: got 2; allowed: "],
    "search: {beam: {type: mass}}": ["search.beam.type: got 'mass'; removed; write search.beam: {recall: 0.98}"],
    "evaluate:\n  measures:\n  - R@10\n  - R10": ["spec.yaml:9: evaluate.measures.1: got 'R10'; allowed: pattern"],
    "evaluate: {seeds: [0, 0]}": ["evaluate.seeds: got [0, 0]; allowed: each value"],
    "evaluate: {seeds: []}": ["evaluate.seeds: got []; allowed: at least 1"],
    "evaluate: {lists: some}": ["evaluate.lists: got 'some'; allowed: a whole number or 'auto'"],
    "train: fast": ["spec.yaml:6: train: got 'fast'; allowed: a mapping"],
    "cluster:\n  embed: {gpus: 1.5}": ["spec.yaml:7: cluster.embed.gpus: got 1.5; allowed: at most 1, or a whole"],
    "name: b": ["spec.yaml:6: name: given twice (first on line 1)"],
    "train: {epochs: 1, epochs: 2}": ["spec.yaml:6: epochs: given twice (first on line 6)"],
    "<<: {train: {epochs: 3}}": ["spec.yaml:6: got a key '<<'"],
    "train: {epochs: 3": ["spec.yaml:7: not YAML: ", "expected ',' or '}'"],
    "cross_encoder: {model: m}\nsearch: {rerank: {type: axn, lamda: 0.5}}": ["lamda: got 0.5", "mean lambda?"],
}
"""Lines after the smallest spec -> fragments of the message, in order."""

WHOLE = {
    SMALLEST.replace("path: data/a", "path: a, pth: b"): ["spec.yaml:3: corpus.pth: got 'b'", "did you mean path?"],
    SMALLEST.replace("beir", "bier"): ["spec.yaml:3: corpus.type: got 'bier'; allowed: 'beir', 'jsonl', 'parquet'"],
    SMALLEST.replace("type: beir, ", ""): ["spec.yaml:3: corpus", "allowed: a mapping with a type"],
    SMALLEST.replace("path: data/a", "path: null"): ["spec.yaml:3: corpus.path: got null; allowed: text"],
    "name: a\nworkdir: b\ncorpus: {type: beir}\nencoder: {train: head}\n": [
        "spec.yaml:3: corpus.path: missing; allowed: a value: this key is required",
        "spec.yaml:4: encoder.model: missing",
    ],
    "name: &a x\nworkdir: *a\n": ["aliases (*) are not allowed"],
    "[" * 50_000: ["spec.yaml: nested too deeply"],
    "#" * 1_000_001: ["spec.yaml: larger than a spec may be"],
    b"name: \xff\n": ["spec.yaml: not UTF-8 text", "byte 6"],
    "# later\n": ["spec.yaml: empty; allowed: a mapping with the keys name, workdir, corpus"],
    "- name\n": ["spec.yaml: got ['name']; allowed: a mapping"],
}

SET = {
    "workdir=s3:///a": ["workdir: got 's3:///a'", "s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"],
    "train.epochs": ["--set train.epochs: got", "allowed: KEY=VALUE"],
    "=3": ["--set =3: got '=3'; allowed: KEY=VALUE"],
    "name.x=3": ["--set name.x=3: name holds 'a', no section; allowed: a key inside a section"],
    "train.epoch=3": ["--set train.epoch=3: train.epoch: got 3", "did you mean epochs?"],
    "train.epochs=x": ["--set train.epochs=x: train.epochs: got 'x'; allowed: a whole number"],
    "router={type: learned_ivf, branching: x}": ["branching: x}: router.branching: got 'x'"],
    "name=": ["--set name=: name: got null; allowed: text"],
    "search.rerank.type=null": ["search.rerank.type: got null"],
    "name=[a": ["--set name=[a: not YAML: "],
    "train.epochs=" + "9" * 5000: ["--set train.epochs=99", "…: not YAML"],
}

REFUSED = [
    (SMALLEST, ["corpus.type=python_docs"], ["corpus.path: got 'data/a'; allowed: type"]),
    *((f"{SMALLEST}{lines}\n", [], said) for lines, said in ADDED.items()),
    *((text, [], said) for text, said in WHOLE.items()),
    *((SMALLEST, [override], said) for override, said in SET.items()),
    (SMALLEST, ["encoder.precision=float16", "encoder.train=all"], ["allowed: float16 only with train none or head"]),
]


@pytest.mark.parametrize(("text", "overrides", "fragments"), REFUSED, ids=lambda value: str(value)[-40:])
def test_a_mistake_is_told_with_its_place_what_was_given_and_what_is_allowed(file, text, overrides, fragments):
    with pytest.raises(InputError) as caught:
        load(file(text), overrides)
    message = str(caught.value)
    found = [message.find(fragment) for fragment in fragments]
    assert found == sorted(found), message
    assert found[0] >= 0, message
    assert message.count("\n") < 24
    assert len(message) < 2000


def test_every_mistake_has_its_line(file):
    with pytest.raises(InputError) as caught:
        load(file(SMALLEST + "train: {epochs: x, batch_size: y}\n"), ["search.k=z"])
    assert [line.split(": got")[0] for line in str(caught.value).splitlines()] == [
        "spec.yaml:6: train.epochs",
        "spec.yaml:6: train.batch_size",
        "--set search.k=z: search.k",
    ]
    with pytest.raises(InputError, match=r"\n… and 88 more mistakes$"):
        load(file(SMALLEST + "".join(f"key{number}: x\n" for number in range(100))))


def test_what_is_no_file(tmp_path):
    with pytest.raises(InputError, match=r"absent\.yaml: no such file"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_numbers_and_words_are_read_as_people_mean_them(file):
    spec = load(file("\ufeff" + SMALLEST + "train: {encoder_lr: 1e-3, temperature: 2E-2, batch_size: 1e2}\n"))
    assert (spec.train.encoder_lr, spec.train.temperature, spec.train.batch_size) == (1e-3, 2e-2, 100)
    for word in ("no", "2024-01-01"):
        assert load(file(SMALLEST), [f"name={word}"]).name == word
    nulls = "search: {rerank: null, k: null, beam:}\ntrain: null\nindex:\n"
    assert load(file(SMALLEST + nulls)) == load(file(SMALLEST))
    spec = load(file(SMALLEST), ["corpus={type: python_docs}", "train.epochs=1", "train.epochs=2"])
    assert (spec.corpus.type, spec.train.epochs) == ("python_docs", 2)


def at(spec, key):
    return functools.reduce(getattr, key.split("."), spec)


JSONL = SMALLEST.replace("{type: beir, path: data/a}", "{type: jsonl, documents: d, queries: q, judgements: {test: t}}")

LEFT_OUT = {
    "a section of a union's member": (JSONL, "corpus.judgements", Judgements()),
    "a number": (SMALLEST + "search: {k: 7}\n", "search.k", 100),
    "a whole section": (SMALLEST + "search: {k: 7}\n", "search", SearchSpec()),
    "what none is a value of": (SMALLEST + "cluster: {train: {micro_batch: 3}}\n", "cluster.train.micro_batch", None),
}


@pytest.mark.parametrize(("text", "key", "default"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_null_leaves_out_what_the_file_gives(file, text, key, default):
    assert at(load(file(text)), key) != default
    assert at(load(file(text), [f"{key}=null"]), key) == at(load(file(text), [f"{key}="]), key) == default


def test_a_mapping_is_read_as_a_file_is(file):
    tree = yaml.safe_load(SMALLEST)
    assert load(tree, ["train.epochs=3"]) == load(file(SMALLEST), ["train.epochs=3"])
    assert tree == yaml.safe_load(SMALLEST)
    with pytest.raises(InputError, match=r"^spec: corpus\.kind: got 'a'; allowed: "):
        load({**tree, "corpus": {**tree["corpus"], "kind": "a"}})
    with pytest.raises(InputError, match=r"^spec: name: missing; allowed: "):
        load({name: value for name, value in tree.items() if name != "name"})


def test_a_missing_file_of_pairs_is_refused_before_any_work(tiny_spec, tmp_path, capsys):
    spec = tiny_spec(train="{type: hce, generated: nowhere.jsonl}")
    assert run.main([str(spec), "--check"]) == 0
    assert run.main([str(spec)]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: train.generated: got 'nowhere.jsonl', no such file; allowed: ")
    assert not (tmp_path / "work").exists()
    assert run.main(["--plan"]) == 2
    assert capsys.readouterr().err.startswith("error: SPEC: missing; allowed: a YAML file, for instance specs/quick")


SECTIONS = {
    **dict.fromkeys(
        [f"corpus.{kind}" for kind in ("documents_c", "judgements_", "queries_c", "revision")],
        "corpus={type: huggingface, path: a/b}",
    ),
    "corpus.suffixes": "corpus={type: text, path: notes}",
    "track.": "track={type: wandb}",
    "search.rerank.": "search={rerank: {type: axn}}",
    "train.loss.": "train={type: ehi}",
}
"""Beginnings of keys, and the sections that have such keys."""


@pytest.mark.parametrize("removed", sorted({*GONE, *INSTEAD}))
def test_a_removed_key_or_value_says_what_to_write_instead(file, removed):
    key, equals, value = removed.partition("=")
    of = [section for name, section in SECTIONS.items() if key.startswith(name)]
    with pytest.raises(InputError) as error:
        load(file(SMALLEST), [*of, f"{key}={value if equals else 1}"])
    assert f"; removed; {INSTEAD.get(removed, 'leave the key out')}" in str(error.value)

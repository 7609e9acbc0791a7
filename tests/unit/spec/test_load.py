"""A spec file and `--set` pairs become one JobSpec, or a message that names key, place, what was given and allowed."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rayhier.spec import InputError, JobSpec, load
from rayhier.spec.corpus import Judgements
from rayhier.spec.removed import REMOVED
from rayhier.spec.search import Rerank, SearchSpec

SPECS = Path(__file__).parents[3] / "specs"

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

    def write(text: str | bytes) -> str:
        Path("spec.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
        return "spec.yaml"

    return write


def test_smallest_spec_has_every_default(file):
    spec = load(file(SMALLEST))
    assert (spec.name, spec.corpus.type, spec.router.branching) == ("a", "beir", "auto")
    assert spec.evaluate.measures == ("nDCG@10", "RR@10", "R@10", "R@100")


REFUSED = {
    # case: (text, overrides, fragments of the message, in order)
    "unknown key": (
        SMALLEST + "train: {epoch: 3}\n",
        [],
        ["spec.yaml:6: train.epoch: got 3; allowed: objective, epochs", "(did you mean epochs?)"],
    ),
    "unknown section": (SMALLEST + "corpuss: x\n", [], ["spec.yaml:6: corpuss: got 'x'", "did you mean corpus?"]),
    "unknown key of a union": (
        SMALLEST.replace("path: data/a", "path: a, pth: b"),
        [],
        ["spec.yaml:3: corpus.pth: got 'b'; allowed: type, passages, fields, path (did you mean path?)"],
    ),
    "mistyped value": (
        SMALLEST + "train:\n  epochs: many\n",
        [],
        ["spec.yaml:7: train.epochs: got 'many'; allowed: a whole number"],
    ),
    "a beam for each query": (
        SMALLEST + "search: {beam: {type: mass, target: 0.9}}\n",
        [],
        [
            "search.beam.type: got 'mass'; removed; write search.beam: {recall: 0.98}",
            "search.beam.target: got",
        ],
    ),
    "half a number": (SMALLEST + "train: {epochs: 1.5}\n", [], ["train.epochs: got 1.5; allowed: a whole number"]),
    "a truth value is no number": (
        SMALLEST + "train: {epochs: yes}\n",
        [],
        ["train.epochs: got 'yes'; allowed: a whole number"],
    ),
    "not a number": (SMALLEST + "train: {encoder_lr: .nan}\n", [], ["train.encoder_lr: got nan; allowed: a finite"]),
    "out of range": (SMALLEST + "search: {k: 0}\n", [], ["search.k: got 0; allowed: greater than or equal to 1"]),
    "deep key": (
        SMALLEST + "train:\n  hard_negatives:\n    refresh: -1\n",
        [],
        ["spec.yaml:8: train.hard_negatives.refresh: got -1; allowed: greater than or equal to 1"],
    ),
    "item of a list": (
        SMALLEST + "evaluate:\n  measures:\n  - R@10\n  - R10\n",
        [],
        ["spec.yaml:9: evaluate.measures.1: got 'R10'; allowed: pattern"],
    ),
    "text for a list": (SMALLEST + "evaluate: {measures: R@10}\n", [], ["got 'R@10'; allowed: a list"]),
    "value twice": (SMALLEST + "evaluate: {seeds: [0, 0]}\n", [], ["evaluate.seeds: got [0, 0]; allowed: each value"]),
    "empty list": (SMALLEST + "evaluate: {seeds: []}\n", [], ["evaluate.seeds: got []; allowed: at least 1"]),
    "either of two kinds": (
        SMALLEST + "evaluate: {lists: some}\n",
        [],
        ["evaluate.lists: got 'some'; allowed: a whole number or 'auto'"],
    ),
    "section that is text": (SMALLEST + "train: fast\n", [], ["spec.yaml:6: train: got 'fast'; allowed: a mapping"]),
    "one GPU and a half": (
        SMALLEST + "cluster:\n  embed: {gpus: 1.5}\n",
        [],
        ["spec.yaml:7: cluster.embed.gpus: got 1.5; allowed: at most 1, or a whole number"],
    ),
    "wrong union tag": (
        SMALLEST.replace("beir", "bier"),
        [],
        ["spec.yaml:3: corpus.type: got 'bier'; allowed: 'beir', 'jsonl', 'parquet'"],
    ),
    "no union tag": (
        SMALLEST.replace("type: beir, ", ""),
        [],
        ["spec.yaml:3: corpus", "allowed: a mapping with a type"],
    ),
    "missing keys": (
        "name: a\nworkdir: b\ncorpus: {type: beir}\nencoder: {train: head}\n",
        [],
        ["spec.yaml:3: corpus.path: missing", "spec.yaml:4: encoder.model: missing", "required"],
    ),
    "float16 training": (
        SMALLEST,
        ["encoder.precision=float16", "encoder.train=all"],
        ["encoder: got", "allowed: float16 only with train none or head"],
    ),
    "another storage": (SMALLEST, ["workdir=ftp://host/a"], ["workdir: got 'ftp://host/a'; allowed: a path on this"]),
    "no bucket": (
        SMALLEST,
        ["workdir=s3:///a"],
        ["workdir: got 's3:///a'", "s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"],
    ),
    "duplicate key": (SMALLEST + "name: b\n", [], ["spec.yaml:6: name: given twice (first on line 1)"]),
    "duplicate deep key": (
        SMALLEST + "train: {epochs: 1, epochs: 2}\n",
        [],
        ["spec.yaml:6: epochs: given twice (first on line 6)"],
    ),
    "alias": ("name: &a x\nworkdir: *a\n", [], ["aliases (*) are not allowed"]),
    "merge": (SMALLEST + "<<: {train: {epochs: 3}}\n", [], ["spec.yaml:6: got a key '<<'"]),
    "key that is a number": (SMALLEST + "1: x\n", [], ["spec.yaml:6: got a key '1'; allowed: a word"]),
    "key that is a list": (SMALLEST + "? [a]\n: x\n", [], ["spec.yaml:6: got a key"]),
    "not YAML": (SMALLEST + "train: {epochs: 3\n", [], ["spec.yaml:7: not YAML: ", "expected ',' or '}'"]),
    "two documents": (SMALLEST + "---\nb: 1\n", [], ["spec.yaml:6: not YAML: expected a single document"]),
    "code": (SMALLEST + "a: !!python/object:os.system x\n", [], ["spec.yaml:6: not YAML: could not determine"]),
    "control character": ("name: a\x00\n", [], ["spec.yaml: not YAML: ", "special characters"]),
    "nested too deeply": ("[" * 50_000, [], ["spec.yaml: nested too deeply"]),
    "too large": ("#" * 1_000_001, [], ["spec.yaml: larger than a spec may be"]),
    "not UTF-8": (b"name: \xff\n", [], ["spec.yaml: not UTF-8 text", "byte 6"]),
    "empty": ("", [], ["spec.yaml: empty; allowed: a mapping with the keys name, workdir, corpus"]),
    "only a comment": ("# later\n", [], ["spec.yaml: empty"]),
    "a list": ("- name\n", [], ["spec.yaml: got ['name']; allowed: a mapping"]),
    "--set without =": (SMALLEST, ["train.epochs"], ["--set train.epochs: got", "allowed: KEY=VALUE"]),
    "--set without key": (SMALLEST, ["=3"], ["--set =3: got '=3'; allowed: KEY=VALUE"]),
    "--set with an empty part": (SMALLEST, ["train..epochs=3"], ["--set train..epochs=3: got", "allowed: KEY=VALUE"]),
    "--set into text": (
        SMALLEST,
        ["name.x=3"],
        ["--set name.x=3: name holds 'a', no section; allowed: a key inside a section"],
    ),
    "--set of an unknown key": (
        SMALLEST,
        ["train.epoch=3"],
        ["--set train.epoch=3: train.epoch: got 3", "did you mean epochs?"],
    ),
    "a key of which Python has a word": (
        SMALLEST + "cross_encoder: {model: m}\nsearch: {rerank: {type: axn, lamda: 0.5}}\n",
        [],
        ["search.rerank.lamda: got 0.5", "lambda", "did you mean lambda?"],
    ),
    "--set below an unknown section": (SMALLEST, ["tran.epochs=3"], ["--set tran.epochs=3: tran: got", "mean train?"]),
    "--set of a mistyped value": (
        SMALLEST,
        ["train.epochs=x"],
        ["--set train.epochs=x: train.epochs: got 'x'; allowed: a whole number"],
    ),
    "--set of a section, not the line it replaces": (
        SMALLEST.replace("type: learned_ivf", "type: learned_ivf, branching: 4"),
        ["router={type: learned_ivf, branching: x}"],
        ["--set router={type: learned_ivf, branching: x}: router.branching: got 'x'"],
    ),
    "--set of nothing": (SMALLEST, ["name="], ["--set name=: name: got null; allowed: text"]),
    "a required key that is null": (
        SMALLEST.replace("path: data/a", "path: null"),
        [],
        ["spec.yaml:3: corpus.path: got null; allowed: text"],
    ),
    "--set of a required section to null": (SMALLEST, ["encoder=null"], ["--set encoder=null: encoder: got null"]),
    "--set of a union's type to null": (SMALLEST, ["search.rerank.type=null"], ["search.rerank.type: got null"]),
    "an unknown key that is null": (SMALLEST, ["train.epoch=null"], ["train.epoch: got null", "did you mean epochs?"]),
    "--set that is not YAML": (SMALLEST, ["name=[a"], ["--set name=[a: not YAML: "]),
    "--set longer than a screen": (SMALLEST, ["train.epochs=" + "9" * 5000], ["--set train.epochs=99", "…: not YAML"]),
}


@pytest.mark.parametrize(("text", "overrides", "fragments"), REFUSED.values(), ids=REFUSED)
def test_refused(file, text, overrides, fragments):
    with pytest.raises(InputError) as caught:
        load(file(text), overrides)
    message = str(caught.value)
    for fragment in fragments:
        assert fragment in message
    assert message.count("\n") < 24
    assert len(message) < 2000


def test_of_a_mapping_where_a_number_may_be_too_only_its_own_mistakes_are_said(file):
    path = file(SMALLEST + "search: {beam: {recall: 2}}\n")
    with pytest.raises(InputError) as caught:
        load(path)
    assert str(caught.value) == f"{path}:6: search.beam.recall: got 2; allowed: less than or equal to 0.999"


def test_every_mistake_has_its_line(file):
    with pytest.raises(InputError) as caught:
        load(file(SMALLEST + "train: {epochs: x, batch_size: y}\n"), ["search.k=z"])
    assert [line.split(": got")[0] for line in str(caught.value).splitlines()] == [
        "spec.yaml:6: train.epochs",
        "spec.yaml:6: train.batch_size",
        "--set search.k=z: search.k",
    ]


def test_many_mistakes_stay_on_one_screen(file):
    with pytest.raises(InputError) as caught:
        load(file(SMALLEST + "".join(f"key{number}: x\n" for number in range(100))))
    assert str(caught.value).splitlines()[-1] == "… and 88 more mistakes"


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match=r"absent\.yaml: no such file"):
        load(tmp_path / "absent.yaml")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_exponents_are_numbers(file):
    spec = load(file(SMALLEST + "train: {encoder_lr: 1e-3, temperature: 2E-2, batch_size: 1e2}\n"))
    assert (spec.train.encoder_lr, spec.train.temperature, spec.train.batch_size) == (1e-3, 2e-2, 100)


def test_words_that_yaml_takes_for_more_stay_text(file):
    assert load(file(SMALLEST), ["name=no"]).name == "no"
    assert load(file(SMALLEST), ["name=2024-01-01"]).name == "2024-01-01"


def test_byte_order_mark_is_no_mistake(file):
    assert load(file("\ufeff" + SMALLEST)).name == "a"


SETTABLE = {
    "name=b": ("name", "b"),
    "workdir=runs/b=c": ("workdir", "runs/b=c"),
    "corpus.path=data/b": ("corpus.path", "data/b"),
    "encoder.max_length=64": ("encoder.max_length", 64),
    "router.branching=7": ("router.branching", 7),
    "train.temperature=0.5": ("train.temperature", 0.5),
    "index.vectors=float32": ("index.vectors", "float32"),
    "search.beam=2": ("search.beam", 2),
    "evaluate.seeds=[3, 4]": ("evaluate.seeds", (3, 4)),
    "cluster.embed.workers=5": ("cluster.embed.workers", 5),
    "cross_encoder={model: m}": ("cross_encoder.model", "m"),
    "track={type: wandb}": ("track.type", "wandb"),
}


@pytest.mark.parametrize(("override", "key", "value"), [(given, *found) for given, found in SETTABLE.items()])
def test_set_reaches_every_section(file, override, key, value):
    found = load(file(SMALLEST), [override])
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value


JSONL = SMALLEST.replace("{type: beir, path: data/a}", "{type: jsonl, documents: d, queries: q, judgements: {test: t}}")

LEFT_OUT = {
    "a section of a union's member": (JSONL, "corpus.judgements", Judgements()),
    "a number": (SMALLEST + "search: {k: 7}\n", "search.k", 100),
    "a whole section": (SMALLEST + "search: {k: 7}\n", "search", SearchSpec()),
    "a union": (SMALLEST + "search: {rerank: {type: none}, beam: {recall: 0.9}}\n", "search.beam", "auto"),
    "a section with a type": (SMALLEST + "search: {rerank: {type: none}}\n", "search.rerank", Rerank(type="none")),
    "what none is a value of": (SMALLEST + "cluster: {tokenise: {workers: 3}}\n", "cluster.tokenise", None),
}


@pytest.mark.parametrize(("text", "key", "default"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_null_leaves_out_what_the_file_gives(file, text, key, default):
    def value(spec):
        return functools.reduce(getattr, key.split("."), spec)

    assert (value(load(file(text))) == default) is (key == "search.rerank")
    assert value(load(file(text), [f"{key}=null"])) == default
    assert value(load(file(text), [f"{key}="])) == default


def test_a_mapping_is_read_as_a_file_is(file):
    tree = yaml.safe_load(SMALLEST)
    assert load(tree, ["train.epochs=3"]) == load(file(SMALLEST), ["train.epochs=3"])
    assert tree == yaml.safe_load(SMALLEST)
    with pytest.raises(InputError, match=r"^spec: corpus\.kind: got 'a'; allowed: "):
        load({**tree, "corpus": {**tree["corpus"], "kind": "a"}})
    with pytest.raises(InputError, match=r"^spec: name: missing; allowed: "):
        load({name: value for name, value in tree.items() if name != "name"})


def test_null_in_the_file_is_as_if_it_were_not_there(file):
    nulls = "search: {rerank: null, k: null, beam:}\ntrain: null\nindex:\n"
    assert load(file(SMALLEST + nulls)) == load(file(SMALLEST))


def test_every_section_is_set_once_above():
    """But scores, which need a cross-encoder."""
    set_ = {override.partition("=")[0].partition(".")[0] for override in SETTABLE}
    assert set_ == set(JobSpec.model_fields) - {"scores"}


def test_set_replaces_a_section_and_the_last_one_wins(file):
    spec = load(file(SMALLEST), ["corpus={type: python_docs}", "train.epochs=1", "train.epochs=2"])
    assert (spec.corpus.type, spec.train.epochs) == ("python_docs", 2)


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_specs_parse(path):
    assert load(path).name


def test_loading_brings_neither_torch_nor_ray():
    code = "import sys, rayhier.spec; print(*{'faiss', 'numpy', 'pyarrow', 'ray', 'torch'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""


def test_a_key_of_another_type_is_refused_with_the_keys_of_this_one():
    with pytest.raises(InputError) as caught:
        load(Path(__file__).parents[3] / "specs" / "scifact.yaml", ["corpus.type=python_docs"])
    assert "corpus.path: got 'data/scifact'; allowed: type" in str(caught.value)
    assert "did you mean" not in str(caught.value)


SECTIONS = {
    "corpus.documents_config": "corpus={type: huggingface, path: a/b}",
    "corpus.judgements_config": "corpus={type: huggingface, path: a/b}",
    "corpus.queries_config": "corpus={type: huggingface, path: a/b}",
    "corpus.suffixes": "corpus={type: text, path: notes}",
    "corpus.revision": "corpus={type: huggingface, path: a/b}",
    "corpus.judgements_revision": "corpus={type: huggingface, path: a/b}",
    "track.": "track={type: wandb}",
    "search.rerank.": "search={rerank: {type: axn}}",
    "train.generated.": "train={type: hce}",
    "train.loss.": "train={type: ehi}",
}
"""Beginnings of keys, and the sections that have such keys."""


@pytest.mark.parametrize("removed", sorted(REMOVED))
def test_a_removed_key_or_value_says_what_to_write_instead(file, removed):
    key, equals, value = removed.partition("=")
    of = [section for name, section in SECTIONS.items() if key.startswith(name)]
    with pytest.raises(InputError) as error:
        load(file(SMALLEST), [*of, f"{key}={value if equals else 1}"])
    assert f"; removed; {REMOVED[removed]}" in str(error.value)

"""Planning: what makes a fingerprint, what is refused before a cluster is touched, what is shown."""

import re
from pathlib import Path

import pytest
import ray

from rayhier import run
from rayhier.job import plan as planning
from rayhier.job import rates
from rayhier.job.hours import stage_cost
from rayhier.job.outline import NOT_EVALUATED, notes, show
from rayhier.job.plan import fingerprint, make_plan, size_of
from rayhier.spec import InputError, load

READING = ("cross_encoder", "scores", "factors")
STAGES = tuple(stage for stage in planning.STAGES if stage not in ("generate", *READING))
"""Stages of a spec without generated pairs and without a cross-encoder."""
SPECS = sorted((Path(__file__).parents[3] / "specs").glob("*.yaml"))
ONE_LEAF = "{vectors: float32, leaves_per_document: 1, words: false}"
ROWS = "documents: {0}/corpus.jsonl, queries: {0}/queries.jsonl, columns: {{id: _id}}"
NEW = '{"_id": "new", "text": "a new one"}\n'


def fingerprints(spec, *overrides):
    return {step.title: step.fingerprint for step in make_plan(load(spec, overrides)).steps}


def seconds(plan, stage):
    return stage_cost(stage, plan.spec, plan.work, rates.load()).seconds


def test_a_copy_of_corpus_and_model_elsewhere_is_the_same(tiny_spec, tiny_corpus, tiny_model, tmp_path):
    spec = tiny_spec()
    corpus = tiny_corpus.rename(tmp_path / "moved")
    model = tmp_path / "model"
    model.mkdir()
    for file in tiny_model.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    before = fingerprints(spec, f"corpus.path={corpus}")
    assert fingerprints(spec, f"corpus.path={corpus}", f"encoder.model={model}") == before
    listed = tiny_spec(corpus=f"{{type: jsonl, {ROWS.format(corpus)}}}")
    before = fingerprints(listed, f"corpus.judgements.test={corpus}/qrels/test.tsv")
    moved = tiny_spec(corpus=f"{{type: jsonl, {ROWS.format(corpus.rename(tmp_path / 'again'))}}}")
    judged = f"corpus.judgements.test={tmp_path}/again/qrels/test.tsv"
    assert fingerprints(moved, judged) == before
    assert not {*fingerprints(moved, judged, "corpus.columns.title=text").values()} & {*before.values()}


RECALL = {"search": "{k: 10, beam: {recall: 0.9}}"}
READS = {"search": "{k: 10, rerank: {type: rnr, budget: 60, pool: 100}}", "cross_encoder": "{model: MODEL}"}
JOINT = {"router": "{type: ehi, branching: 8}", "train": "{type: ehi}"}
FROZEN = {
    "encoder": "{model: MODEL, train: none}",
    "router": "{type: retreever, depth: 3}",
    "train": "{type: retreever}",
}
CHANGES: list[tuple[dict[str, str], str, tuple[str, ...]]] = [
    ({}, "name=other", ()),
    ({}, "workdir=/tmp/elsewhere", ()),
    ({}, "index.leaves_per_document=2", ()),  # what `auto` stands for
    ({}, "encoder.max_length=16", STAGES[1:]),
    ({}, "router.branching=4", STAGES[3:]),
    ({}, "train.epochs=4", STAGES[3:]),
    ({}, "index.leaves_per_document=1", STAGES[3:]),
    (JOINT, "index.leaves_per_document=2", STAGES[4:]),
    ({}, "index.vectors=float16", STAGES[4:]),
    ({}, "index.words=false", STAGES[3:]),  # words decide which encoder is kept
    ({"encoder": "{model: MODEL, adopt: always}"}, "index.words=false", STAGES[4:]),
    (FROZEN, "index.words=false", STAGES[4:]),
    ({}, "search.hybrid.weight=0.2", STAGES[5:]),
    (RECALL, "search.k=5", STAGES[5:]),
    (READS, "search.rerank.budget=20", STAGES[5:]),
    (READS, "search.mode=dense", STAGES[5:]),
    (READS, "search.rerank.budget=70", STAGES[6:]),  # fifty are read of those
    (READS, "search.rerank.pool=200", STAGES[6:]),
    (RECALL, "search.beam.recall=0.8", STAGES[6:]),
    ({}, "search.beam=3", STAGES[6:]),
    ({}, "search.mode=dense", STAGES[6:]),
    ({}, "evaluate.lists=4", STAGES[6:]),
]
"""Lines of a spec, what is set, and the stages that are made again or no longer."""


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_shipped_spec_is_planned(path, tiny_corpus, tiny_model, tmp_path, capsys):
    shipped, model = load(path), f"model={tiny_model}"
    overrides = [f"workdir={tmp_path}/work", f"encoder.{model}", "encoder.sha256=null"]
    overrides += ["cluster.embed.workers=1", "cluster.index.workers=1", f"corpus={{type: beir, path: {tiny_corpus}}}"]
    reads = [f"cross_encoder.{model}"] if shipped.cross_encoder is not None else []
    fewer = {"hce": ([], 30), "retreever": (["router.depth=4"], 16)}
    few, leaves = fewer.get(shipped.router.type, (["router.branching=20"], 20))
    arguments = [part for override in (*overrides, *reads, *few) for part in ("--set", override)]
    before = ray.is_initialized()
    assert run.main([str(path), *arguments, "--plan"]) == 0
    shown = capsys.readouterr().out
    assert all(stage in shown for stage in (*STAGES, *(READING if reads else ())))
    assert f"{leaves} leaves" in shown
    if path.stem == "scifact-axn":
        assert "scores: 480 pairs are scored before any search" in shown
    assert ray.is_initialized() == before
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(("lines", "override", "stages"), CHANGES)
def test_a_change_makes_its_stage_and_those_after_it_anew(lines, override, stages, tiny_spec, tiny_model):
    spec = tiny_spec(**{name: line.replace("MODEL", str(tiny_model)) for name, line in lines.items()})
    before, after = fingerprints(spec), fingerprints(spec, override)
    assert "calibrate seed 0" in before
    changed = {title.split()[0] for title in before if before[title] != after.get(title)}
    assert (changed, after.keys() - before.keys()) == (set(stages), set())


@pytest.mark.parametrize(
    ("appended", "stages"),
    [
        ({"queries.jsonl": NEW, "qrels/test.tsv": "new\td3\t1\n"}, ("test", "evaluate")),
        ({"qrels/test.tsv": "q200\td5\t1\n"}, ("test", "evaluate")),
        ({"queries.jsonl": NEW}, ("test", "evaluate")),
        ({"queries.jsonl": NEW, "qrels/train.tsv": "new\td3\t1\n"}, STAGES),
        ({"corpus.jsonl": NEW}, STAGES),
    ],
)
def test_what_only_a_test_reads_changes_nothing_that_was_trained(appended, stages, tiny_spec, tiny_corpus):
    spec = tiny_spec()
    before = fingerprints(spec)
    for name, text in appended.items():
        (tiny_corpus / name).write_text((tiny_corpus / name).read_text() + text)
    after = fingerprints(spec)
    assert {title.split()[0] for title in before if before[title] != after[title]} == set(stages)


def test_a_fingerprint_is_of_names_and_values_in_any_order():
    """Of other code too, so that what is published stays published."""
    assert fingerprint(a={"y": [2, None], "x": 1}, text="λ") == "13722696cd25"
    with pytest.raises(ValueError, match="not JSON compliant"):
        fingerprint(a=float("nan"))


def test_generated_pairs_are_a_step_of_their_own_between_corpus_and_vectors(tiny_spec, tmp_path):
    """By the file's content, wherever it lies; the fingerprints of a spec without it know nothing of it."""
    pair_file = tmp_path / "pairs.jsonl"
    pair_file.write_text('{"query": "pine oak", "doc_id": "d1"}\n{"query": "ash", "doc_id": "d2"}\n')
    spec = tiny_spec(train="{type: hce}")
    without = fingerprints(spec)
    first = fingerprints(spec, f"train.generated={pair_file}")
    assert list(first) == ["corpus", "generate", *list(without)[1:]]
    assert [title for title in without if first[title] == without[title]] == ["corpus"]
    moved = pair_file.rename(tmp_path / "moved.jsonl")
    assert fingerprints(spec, f"train.generated={moved}") == first
    moved.write_text(moved.read_text().replace("ash", "elm"))
    other = fingerprints(spec, f"train.generated={moved}")
    assert [title for title in first if other[title] == first[title]] == ["corpus"]
    assert fingerprints(spec, "train.generated=null") == without
    plan = make_plan(load(spec, [f"train.generated={moved}"]))
    assert plan.step("vectors").bytes == make_plan(load(spec)).step("vectors").bytes + 2 * 32 * 4


def test_a_seed_is_part_of_its_model_and_index_alone(tiny_spec):
    one, two = fingerprints(tiny_spec()), fingerprints(tiny_spec(), "evaluate.seeds=[1, 0]")
    assert {title: one[title] for title in one if title != "evaluate"}.items() <= two.items()
    assert two["train seed 0"] != two["train seed 1"]
    assert two["index seed 0"] != two["index seed 1"]
    assert one["evaluate"] != two["evaluate"]


def test_show_names_places_sizes_resources_and_state(tiny_spec):
    plan = make_plan(load(tiny_spec(cluster="{embed: {workers: 3, cpus: 2}}")))
    lines = show(plan).splitlines()
    assert "240 documents, 8 leaves" in lines[0]
    embed = next(line for line in lines if line.strip().startswith("embed"))
    assert f"vectors/{plan.step('vectors').fingerprint}" in embed
    assert "3 x 2 CPU" in embed
    assert "77 kB" in embed  # (240 documents, their titles and 120 queries) x 32 x 4 bytes
    assert re.search(r" to do +[0-9.]+k tokens, \S+/s a core (from a table|measured here) +estimated +[0-9]+ s$", embed)
    assert lines[-2].startswith("to do: about 10 MB, estimated ")
    assert lines[-1:] == notes(plan)


def test_what_is_published_is_not_counted_again(tiny_spec, tiny_corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("rayhier.executor.cluster.running", lambda: None)
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path))  # without rates that a slow test noted
    plan = make_plan(load(tiny_spec(index=ONE_LEAF)))
    here = {step.title: stage_cost(step.stage, plan.spec, plan.work, on_ray=False).seconds for step in plan.steps}
    assert show(plan).splitlines()[-1] == f"to do: about 10 MB, estimated {sum(here.values()):.0f} s"
    monkeypatch.setattr("rayhier.job.plan.Step.is_published", property(lambda step: step.stage != "index"))
    size = ((tiny_corpus / "corpus.jsonl").stat().st_size + 240 * 32 * 4) / 1000
    assert show(plan).splitlines()[-1] == f"to do: about {size:.0f} kB, estimated {here['index seed 0']:.0f} s"


@pytest.mark.parametrize(
    ("stages", "fresh", "states"),
    [
        (["embed", "evaluate"], False, [*["published"] * 5, "left out", "to do"]),
        (["index", "evaluate"], True, [*["published"] * 4, "to do", "left out", "to do"]),
        (["corpus"], True, ["to do", *["published"] * 4, "left out", "left out"]),
        (["train"], True, [*["published"] * 3, "to do", "removed", "left out", "left out"]),
    ],
)
def test_a_plan_of_some_stages_says_what_they_would_do(stages, fresh, states, tiny_spec, monkeypatch):
    plan = make_plan(load(tiny_spec()))
    monkeypatch.setattr("rayhier.job.plan.Step.is_published", property(lambda step: step.stage in STAGES[:5]))
    steps = show(plan, stages, fresh=fresh).splitlines()[2:9]
    assert [re.search(r"(published|to do|left out|removed) +[0-9]", line)[1] for line in steps] == states


@pytest.mark.parametrize(("address", "warned"), [("auto", True), ("h:1", False)])
def test_a_machine_too_small_for_one_process(address, warned, tiny_spec, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "")
    plan = make_plan(load(tiny_spec(index=ONE_LEAF), [f"cluster.address={address}"]))
    assert notes(plan) == []
    monkeypatch.setattr("os.sysconf", lambda name: 250)  # 62,500 bytes
    # Training and evaluation hold (240 + 120) x 32 x 4 bytes twice, and training 240 titles too, and 150 bytes an id.
    needs = "one process needs about {} kB of memory, but this machine has 62 kB"
    said = [f"warning: {stage}: {needs.format(size)}" for stage, size in (("train", 190), ("evaluate", 92))]
    assert notes(plan) == (said if warned else [])


NOTED = [
    (
        {"index": "{vectors: float32, words: false}"},
        r"index.leaves_per_document: 1.5 rows per document in the leaf map: (\d+) kB instead of (\d+) kB with one row$",
    ),
    ({"search": "{k: 10, beam: 8}"}, r"warning: search.beam: 8 of 8 leaves, so every search reads"),
    ({"corpus": "{type: python_docs}"}, r"corpus: its size is unknown until it is read. This plan assumes 5,000 doc"),
]


@pytest.mark.parametrize(("lines", "said"), NOTED)
def test_what_is_worth_a_line(lines, said, tiny_spec):
    assert notes(make_plan(load(tiny_spec(index=ONE_LEAF)))) == []
    (found,) = notes(make_plan(load(tiny_spec(**{"index": ONE_LEAF, **lines}))))
    assert re.match(said, found)


@pytest.mark.parametrize("leaves", [1, 2])
def test_a_tree_s_leaves_beside_the_rows_take_space(leaves, tiny_spec):
    """2^D numbers of two bytes for each of the 240 documents, in its first row alone."""
    spec = tiny_spec(router="{type: retreever, depth: 6}", train="{type: retreever}")
    given = ["index.words=false", f"index.leaves_per_document={leaves}"]
    deep, shallow = (make_plan(load(spec, [*given, *more])) for more in ([], ["router.depth=5"]))
    sidecars, one = 240 * 2 * 2**6, make_plan(load(spec, given[:1])).step("index", 0).bytes
    assert deep.step("index", 0).bytes - shallow.step("index", 0).bytes == sidecars / 2
    rows = deep.step("index", 0).bytes - sidecars
    assert rows == leaves * (one - sidecars)
    said = f": {size_of(rows + sidecars)} instead of {size_of(one)} with one row"
    assert [note.endswith(said) for note in notes(deep) if "leaves_per_document" in note] == [True] * (leaves - 1)


def test_scores_take_twelve_bytes_a_pair(tiny_spec, tiny_model):
    lines = {"cross_encoder": f"{{model: {tiny_model}}}", "scores": "{judged: 5, per: item, count: 2}"}
    assert make_plan(load(tiny_spec(**lines))).step("scores").bytes == 2 * 240 * 12


def test_a_corpus_without_judgements_is_indexed_and_not_evaluated(tiny_spec, tiny_corpus, capsys):
    corpus = f"{{type: jsonl, documents: {tiny_corpus}/corpus.jsonl, columns: {{id: _id}}}}"
    only_documents = tiny_spec(index=ONE_LEAF, corpus=corpus)
    plan = make_plan(load(only_documents))
    assert [step.stage for step in plan.steps] == ["corpus", "embed", "train", "index"]
    assert notes(plan) == [NOT_EVALUATED]
    assert plan.report is None
    with pytest.raises(InputError, match=r"train\.objective: got 'supervised'"):
        make_plan(load(only_documents, ["train.objective=supervised"]))
    assert run.main([str(only_documents), "--stage", "evaluate"]) == 2
    assert capsys.readouterr().err.startswith("error: --stage: evaluate: left out, because corpus.judgements")
    assert run.main([str(only_documents), "--stage", "generate"]) == 2
    assert capsys.readouterr().err.startswith("error: --stage: got generate without train.generated; allowed: ")


@pytest.mark.parametrize(
    ("key", "section", "line"),
    [
        ("workdir", "workdir", "runs/tiny"),
        ("corpus.path", "corpus", "{type: huggingface, path: models}"),
        ("corpus.documents", "corpus", "{type: jsonl, documents: corpus/corpus.jsonl}"),
        ("corpus.judgements.test", "corpus", f"{{type: jsonl, {ROWS.format('AT')}, judgements: {{test: t.tsv}}}}"),
        ("encoder.model", "encoder", "{model: models/mine}"),
    ],
)
def test_a_relative_path_is_refused_inside_a_job(key, section, line, tiny_spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    spec = load(tiny_spec(**{section: line.replace("AT", f"{tmp_path}/corpus")}))
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    with pytest.raises(InputError, match=rf"^{key}: got .*inside a Ray job "):
        make_plan(spec)


def test_what_cannot_be_made_is_refused_before_it_begins(tiny_spec, tiny_corpus, tmp_path, monkeypatch, capsys):
    """`--check` looks at no data."""
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "current.json").write_text('{"format": 1}')
    with pytest.raises(InputError, match=r"current\.json: format 1, not 5: .* Use another workdir"):
        make_plan(load(tiny_spec(), [f"workdir={tmp_path}/older"]))
    many = tiny_spec(router="{type: learned_ivf, branching: 300}")
    with pytest.raises(InputError, match="at most as many leaves as documents"):
        make_plan(load(many))
    assert "about" in show(make_plan(load(many, ["corpus.passages={words: 3, stride: 1}"]))).splitlines()[0]
    scann = load(tiny_spec(evaluate="{baselines: [exact, scann]}"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "scann" else object())
    with pytest.raises(InputError, match=r"evaluate\.baselines: got 'scann', .* pip install 'rayhier\[scann\]'"):
        make_plan(scann)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    make_plan(scann)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(InputError, match="has 1 kB free, but this plan writes about"):
        make_plan(load(tiny_spec()))
    (tiny_corpus / "qrels" / "test.tsv").unlink()
    with pytest.raises(InputError, match=r"evaluate\.split: got 'test', .* allowed: dev$"):
        make_plan(load(tiny_spec()))
    assert run.main([str(tiny_spec(corpus="{type: beir, path: nowhere}")), "--check"]) == 0
    assert capsys.readouterr().out.endswith(": ok\n")

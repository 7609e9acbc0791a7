"""The workdir of each release is refused, upgraded, searched and written; a run in it trains nothing again."""

import json
import os
import shutil
import socket
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

import rayhier
from rayhier.__main__ import main
from rayhier.index import upgrade as upgrading
from rayhier.index.upgrade import STEPS, upgrade
from rayhier.job.plan import make_plan
from rayhier.job.stages import STAGES
from rayhier.spec import InputError, load
from rayhier.storage import current, files, pins
from rayhier.storage.change_log import Change, ChangeLog
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import locate
from rayhier.storage.writer_lease import leased
from tests.integration.in_process import make

ASSET = Path(__file__).parents[1] / "assets" / "workdir-0.2.0"
KEPT = ("corpus", "vectors", "model", "index")


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A copy of the workdir that 0.2.0 made, next to its spec."""
    shutil.copytree(ASSET, tmp_path / "asset", symlinks=True)
    monkeypatch.chdir(tmp_path / "asset")
    return Path("work")


def saved_in(work):
    return json.loads((work / "current.json").read_bytes())


def edit(work, change):
    saved = saved_in(work)
    change(saved)
    (work / "current.json").write_text(json.dumps(saved))


def index_of(work):
    return next(path.parent for path in work.glob("index/*/*/manifests"))


def newest(work):
    return LeafMap.open(current.artifact(work, current.read(work), "index").root).manifest


def published(fresh=()):
    """Whether the stages of `KEPT` need no work."""
    steps = {step.kind: step.is_published for step in make_plan(load("spec.yaml"), fresh).steps}
    return [steps[kind] for kind in KEPT]


@pytest.mark.parametrize("command", ["search work heron", "serve work", "run spec.yaml"])
def test_opening_names_the_command(work, capsys, command):
    assert main(command.split()) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "work/current.json: format 3, not 5: was written by rayhier 0.2.0: run rayhier upgrade " in error
    with pytest.raises(InputError, match="run rayhier upgrade work"):
        rayhier.open(work)


def test_searches_find_what_0_2_0_found(work, capsys):
    before = index_of(work)
    published = {name: (work / name).read_bytes() for name in files.below(work)}
    assert main(["upgrade", "work"]) == 0
    told = capsys.readouterr().out
    assert "upgraded from rayhier 0.2.0: 62 documents, 4 changes in the log. Nothing was encoded" in told
    assert 'search.codec="auto"' in told
    results = json.loads(Path("results.json").read_text())
    with rayhier.open(work) as index:
        assert len(index) == results["documents"] == 63
        for asked in results["found"]:
            hits = index.search(asked["query"], mode=asked["mode"])
            assert [hit.id for hit in hits] == [name for name, _ in asked["hits"]], asked["query"]
            assert [hit.score for hit in hits] == pytest.approx([score for _, score in asked["hits"]], abs=1e-4)
    changed = {name for name, data in published.items() if (work / name).read_bytes() != data}
    assert changed == {"current.json"}
    assert (work / "current-0.2.0.json").read_bytes() == published["current.json"]
    assert LeafMap.open(before).manifest.change == "upgrade"


def test_an_upgraded_index_is_written(work):
    upgrade(work)
    root = index_of(work)
    with leased(root) as held:
        deleted = Change(6, "delete", pa.table({"doc_id": ["new2"]}), key="k", epoch=held.epoch)
        assert ChangeLog(root).append(deleted)
    with rayhier.open(work) as index:
        assert "new2" not in {document.id for document in index.documents()}
    Path("more.jsonl").write_text('{"id": "more", "text": "an osprey over oakwood", "year": 2026}\n')
    for command in ("fold work", "add work more.jsonl", "delete work d5", "compact work", "verify work"):
        assert main(["index", *command.split()]) == 0, command
    manifest = newest(work)
    assert (manifest.documents, manifest.log) == (62, 6)
    with rayhier.open(work) as index:
        assert [hit.id for hit in index.search("osprey", mode="bm25")] == ["more"]
        assert [hit.id for hit in index.search("heron", mode="bm25")] == ["new1"]


def test_a_run_trains_nothing_again_unless_it_is_told_to(work):
    upgrade(work)
    before = current.read(work).artifacts
    spec = Path("spec.yaml").read_text()
    Path("spec.yaml").write_text(spec.replace("evaluate: {", "evaluate: {split: dev, "))
    make(Path("spec.yaml"), "corpus", "embed", "train", "index", "calibrate")
    after = current.read(work).artifacts
    assert {kind: after[kind] for kind in KEPT} == {kind: before[kind] for kind in KEPT}
    assert after["calibration"] != before["calibration"]
    assert (published(), published(STAGES)) == ([True] * 4, [False] * 4)
    assert published(["train"]) == [True, True, False, False]
    Path("spec.yaml").write_text(spec.replace("epochs: 2", "epochs: 3"))
    assert published() == [True, True, False, False]
    Path("spec.yaml").write_text(spec)
    with Path("documents.jsonl").open("a") as opened:
        opened.write('{"id": "d99", "text": "another source", "year": 2000}\n')
    assert published() == [False] * 4


def unchanged(work):
    return {name: (work / name).read_bytes() for name in files.below(work)}


@pytest.mark.parametrize(("owner", "name"), [(current, "keep"), (current, "write"), (upgrading, "commit")])
def test_an_upgrade_that_was_killed_is_finished_by_the_next(work, monkeypatch, owner, name):
    before = (work / "current.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            upgrade(work)
    assert ((work / "current.json").read_bytes() == before) == (owner is current)
    upgrade(work)
    assert newest(work).version == 5
    again = unchanged(work)
    assert upgrade(work) == ["work: has format 5 already. Nothing was changed"]
    assert unchanged(work) == again


def test_a_bucket(s3):
    place = locate(f"{s3}/work")
    for name in files.below(ASSET / "work"):
        if not name.startswith("encoder/"):
            (place / name).upload(ASSET / "work" / name)
    assert main(["index", "versions", str(place)]) == 2
    assert main(["upgrade", str(place)]) == 0
    assert newest(place).version == 5
    assert upgrade(place)[0].endswith("Nothing was changed")


# Refused


def lease(work, **fields):
    who = {"until": 4e9, "host": socket.gethostname(), "pid": os.getpid()} | fields
    files.write_json(index_of(work) / "log" / "writers" / "000003.json", who)


def test_what_writes_is_not_disturbed(work):
    with pins.pinned(index_of(work), 4, writes=True), pytest.raises(InputError, match="a command writes"):
        upgrade(work)
    for fields in ({}, {"host": "elsewhere", "pid": 1}):
        lease(work, **fields)
        before = unchanged(work)
        with pytest.raises(InputError, match=r"a server writes to this index .*Nothing was changed"):
            upgrade(work)
        assert unchanged(work) == before


def test_a_dead_server_does_not_count_and_cannot_come_back(work):
    lease(work, pid=2**22 + 1)
    upgrade(work)
    assert sorted(path.name for path in index_of(work).glob("log/writers/*"))[-1] == "000004.json"


def test_no_workdir_that_can_be_upgraded(tmp_path):
    for text, message in (
        (None, "no such file; allowed: a workdir of rayhier 0.2.0, or newer"),
        ("{", "cannot be read as JSON"),
        ('{"format": 1}', "got format 1; allowed: .* run the spec in another workdir"),
        ('{"format": 6}', "got format 6; allowed"),
        ('{"format": 3}', "damaged: spec, artifacts or seeds are missing"),
    ):
        if text is not None:
            (tmp_path / "current.json").write_text(text)
        with pytest.raises(InputError, match=rf"current\.json: {message}"):
            upgrade(tmp_path)


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("search", "beam", {"type": "mass", "target": 0.9}, "search.beam: got type mass, a beam for each query"),
        ("search", "finish", "none", 'search.finish: got "none", but this key was removed; allowed: "vectors"'),
        ("router", "height", 2, "router.height: got 2, .*; allowed: 1"),
        ("search", "k", 0, r"spec\.search\.k: Input should be greater"),
    ],
)
def test_keys_that_searches_need(work, section, key, value, message):
    edit(work, lambda saved: saved["spec"][section].update({key: value}))
    before = unchanged(work)
    with pytest.raises(InputError, match=f"{message}.*Nothing was changed"):
        upgrade(work)
    assert unchanged(work) == before


# Specs


def upgraded(work, change):
    saved = saved_in(work)
    change(saved["spec"])
    now, told = STEPS[3](saved, LeafMap.open(index_of(work)).manifest)
    return now.spec, "\n".join(told)


def test_keys_that_moved(work):
    def change(spec):
        spec["run"]["track"] = {"type": "wandb", "project": "p", "mode": "offline", "folder": "."}
        spec["train"]["micro_batch"] = 4
        spec["evaluate"]["baselines"] += ["codes"]
        spec["cross_encoder"] = {"model": "reader", "device": "cpu", "layers": 2}
        spec["scores"] = {"count": 10, "titles": 0, "draw": "base"}
        spec["factors"] = {"vectors": "none", "bias": True}
        spec["corpus"] = {"type": "huggingface", "path": "o/n", "judgements": None, "revision": "a1", "fields": {}}
        spec["corpus"] |= {"judgements_revision": "b2", "documents_config": "corpus"}

    spec, told = upgraded(work, change)
    assert (spec.track.type, spec.cluster.train.micro_batch, spec.factors) == ("wandb", 4, "bias")
    assert (spec.corpus.path, spec.corpus.judgements) == ("o/n@a1", "o/n-qrels@b2")
    assert "codes" not in spec.evaluate.baselines
    for moved in ("run.track to track", "factors to scores.factors", "corpus.revision into corpus.path"):
        assert moved in told
    assert "cross_encoder.layers=2" in told
    assert 'track.mode="offline"' in told
    _, told = upgraded(work, lambda spec: spec["encoder"].update(similarity="dot"))
    assert "BM25's weight has another unit" in told


@pytest.mark.parametrize(("how", "documents", "beam"), [("codes", 62, 8), ("auto", 5_000, 8), ("auto", 62, "auto")])
def test_a_search_of_all_codes_is_a_beam_of_all_leaves(work, how, documents, beam):
    saved = saved_in(work)
    saved["spec"]["search"] |= {"how": how, "beam": "auto"}
    now, told = STEPS[3](saved, LeafMap.open(index_of(work)).manifest.model_copy(update={"documents": documents}))
    assert (now.spec.search.how, now.spec.search.beam) == ("leaves", beam)
    assert any("all documents" in line for line in told) == (beam == 8)


def test_an_automatic_beam_needs_no_calibration(work):
    edit(work, lambda saved: (saved["spec"]["search"].update(beam="auto"), saved["artifacts"].pop("calibration")))
    upgrade(work)
    with rayhier.open(work) as index:
        assert len(index.search("elmroot mosstree")) > 0

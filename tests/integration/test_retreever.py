"""ReTreever from a folder to a served level of its tree: trained, indexed with sidecars, searched, changed."""

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from safetensors.numpy import load_file

from rayhier import run
from rayhier.index import __main__ as index
from rayhier.inspect import __main__ as inspect
from rayhier.search import __main__ as search
from rayhier.search.routing.routes import Model
from rayhier.search.snapshot import Snapshot
from rayhier.serve.args import RequestLimits
from rayhier.serve.backend.engine import Engine
from rayhier.spec import InputError
from rayhier.storage import current, files
from rayhier.storage.leaf_map import LeafMap

from ..conftest import leaf_map_of, write_spec
from ..unit.serve.stand_ins import Near, app_of, engine_of, near_groups
from .in_process import make

pytestmark = pytest.mark.usefixtures("cluster")

TRAIN = "type: retreever, epochs: 2, batch_size: 64"
FROZEN = "max_length: 32, precision: float32, train: none"


def grown(embedded: Path, folder: Path, model: Path, **lines: str) -> Path:
    """A folder with the tiny corpus, its spec and `work`, run up to the index of a tree over a frozen encoder."""
    shutil.copytree(embedded, folder, dirs_exist_ok=True)
    own = {"encoder": f"{{model: {model}, {FROZEN}}}", "evaluate": "{measures: [R@10], baselines: []}", **lines}
    make(write_spec(folder, folder / "corpus", model, **own), "embed", "test", "train", "index")
    return folder


@pytest.fixture(scope="module")
def tree(embedded, tmp_path_factory, tiny_model):
    """A tree over vectors, searched by its second level. Not to be changed by a test."""
    return grown(
        embedded,
        tmp_path_factory.mktemp("tree"),
        tiny_model,
        train=f"{{{TRAIN}}}",
        router="{type: retreever, depth: 4}",
        search="{k: 5, how: level, level: 2}",
    )


@pytest.fixture(scope="module")
def attentive(embedded, tmp_path_factory, tiny_model):
    """A tree over tokens, searched by its second level; the deepest ranks. Not to be changed by a test."""
    return grown(
        embedded,
        tmp_path_factory.mktemp("attentive"),
        tiny_model,
        train=f"{{{TRAIN}, similarity: tv}}",
        router="{type: retreever, depth: 4, splits: attention, propagation: learned, dropout: 0.1}",
        search="{k: 5, how: level, level: 2}",
    )


def test_a_tree_over_vectors_is_trained_searched_by_level_and_changed(embedded, tiny_spec, tmp_path, capsys):
    """The whole command: contrast, adapter and tree; then an added document, and the shell."""
    work = shutil.copytree(embedded / "work", tmp_path / "work")
    spec = tiny_spec(
        train=f"{{{TRAIN}}}",
        router="{type: retreever, depth: 5}",
        search="{k: 5, how: level, level: 3, shortlist: 60}",
        evaluate="{measures: [R@10], baselines: [exact_same_encoder]}",
    )
    make(spec)
    now = current.read(work)
    model = current.artifact(work, now, "model")
    history = files.read_json(model.path("metrics.json"))
    assert list(history) == ["encoder", "adapter", "tree"]
    assert [row["epoch"] for row in history["tree"]] == [0, 1, 2]
    report = files.read_json(work / "report.json")
    (point,) = report["curves"]["retreever"]
    assert point["visited_mean"] == 1.0
    assert point["cost_mean"] < 1.0
    assert "## All measures at level 3, shortlist 60\n" in (work / "report.md").read_text()
    there = LeafMap.open(current.artifact(work, now, "index").root)
    assert all(shard.sidecars["nodes"].maker == now.artifacts["model"] for shard in there.manifest.shards)
    capsys.readouterr()

    new = tmp_path / "new.jsonl"
    new.write_text(json.dumps({"_id": "fresh", "title": "", "text": "quixotic zebra umbrella"}) + "\n")
    assert index.main(["add", str(work), str(new)]) == 0
    capsys.readouterr()
    assert search.main([str(work), "quixotic zebra umbrella", "-k", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "fresh" in said[1]
    assert said[-1] == (
        "compared all 241 documents by 8 numbers, level 3 of the tree, and 100 of them by their vectors"
    )
    assert search.main([str(work), "quixotic zebra umbrella", "--beam", "3"]) == 2
    assert capsys.readouterr().err.startswith("error: beam: got 3, but search.how is level")


def texts(folder: Path, count: int) -> list[str]:
    """Title and text of the first documents."""
    rows = [json.loads(line) for line in (folder / "corpus" / "corpus.jsonl").read_text().splitlines()[:count]]
    return [f"{row['title']} {row['text']}" for row in rows]


def test_a_tree_over_tokens(attentive, tiny_model):
    """Attention inside a frozen encoder: documents are encoded again to be routed; the deepest level ranks."""
    work = attentive / "work"
    model = current.artifact(work, current.read(work), "model")
    assert list(files.read_json(model.path("metrics.json"))) == ["tree"]
    assert not (model.path("encoder") / "2_Dense").exists()
    base, kept = load_file(tiny_model / "model.safetensors"), load_file(model.path("encoder/model.safetensors"))
    assert all((base[name] == kept[name]).all() for name in kept)
    answers = Snapshot.open(work).search(texts(attentive, 20), k=3)
    assert sum(answer.hits[0].id == f"d{number}" for number, answer in enumerate(answers)) >= 18
    *_, client = served(work, Snapshot.open(work))
    one = client.post("/v1/search", json={"query": texts(attentive, 1)[0], "k": 3}).json()
    assert [result["id"] for result in one["results"]] == [hit.id for hit in answers[0].hits]


def served(work: Path, searcher: Snapshot) -> tuple[Engine, list[Near], TestClient]:
    """Engine, groups and HTTP interface of an index."""
    groups = near_groups(work, 3)
    engine = engine_of(searcher, groups)
    return engine, groups, TestClient(app_of(engine, RequestLimits(), rules=engine.view.rules))


def test_a_level_is_served_as_the_searcher_finds(tree, monkeypatch):
    searcher, questions = Snapshot.open(tree / "work"), texts(tree, 30)
    engine, groups, client = served(tree / "work", searcher)
    assert len(client.post("/v1/route", json={"query": "oak", "beam": 3}).json()["leaves"]) == 3
    monkeypatch.setattr(Model, "route", None)  # no query is routed
    for group in groups:
        asyncio.run(group.shards.ping())
    found, whole = asyncio.run(engine.search(searcher.rules.request(questions, 5))), searcher.search(questions, 5)
    for served_one, one in zip(found.answers, whole, strict=True):
        assert [hit.id for hit in served_one.hits] == [hit.id for hit in one.hits]
        assert [hit.score for hit in served_one.hits] == pytest.approx([hit.score for hit in one.hits])
        assert (served_one.leaves, served_one.documents) == ([], 240)
    refused = client.post("/v1/search", json={"query": "oak", "beam": 3})
    assert refused.status_code == 422
    assert refused.json()["error"]["message"].startswith("beam: got 3, but search.how is level")
    groups[1].gone = True
    assert client.get("/readyz").json() == {"ready": False, "lost": ["shards-1"]}
    part = client.post("/v1/search", json={"query": questions[0]}).json()
    assert (part["partial"], part["lost"]) == (True, ["shards-1"])
    assert 0 < part["visited"]["documents"] < 240
    groups[0].gone = groups[2].gone = True
    none = client.post("/v1/search", json={"query": questions[0]}).json()
    assert (none["results"], none["visited"]["documents"], len(none["lost"])) == ([], 0, 3)


def test_a_tree_over_tokens_refuses_bare_vectors(attentive, tmp_path, capsys):
    work = shutil.copytree(attentive / "work", tmp_path / "work")
    vector = [1.0] + [0.0] * 31
    pq.write_table(pa.table({"_id": ["x"], "text": ["oak"], "vector": [vector]}), tmp_path / "new.parquet")
    assert index.main(["add", str(work), str(tmp_path / "new.parquet")]) == 2
    said = "vector: got vectors, but this router reads tokens; allowed: documents as texts"
    assert capsys.readouterr().err.endswith(f"error: {said}\n")
    assert leaf_map_of(work).manifest.version == 1
    searcher = Snapshot.open(work)
    said = "vector: got vectors, but this router reads tokens; allowed: texts"
    with pytest.raises(InputError, match=f"^{said}$"):
        searcher.search(np.array([vector], np.float32), 5)
    *_, client = served(work, searcher)
    for path, body in (
        ("search", {"vector": vector}),
        ("search:batch", {"vectors": [vector]}),
        ("route", {"vector": vector}),
    ):
        answer = client.post(f"/v1/{path}", json=body)
        assert (answer.status_code, answer.json()["error"]["message"]) == (422, said)


def test_a_spoilt_sidecar_is_named(tree, tmp_path, capsys, here, monkeypatch):
    """By whatever reads it: the shell, evaluation, a served group of shards, inspection, verify."""
    here()
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    work = shutil.copytree(tree / "work", tmp_path / "work")
    there = leaf_map_of(work)
    path = there.root / there.manifest.shards[-1].sidecars["nodes"].file.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    def refused(command: Callable[[list[str]], int], *given: object) -> str:
        assert command([str(one) for one in given]) == 2
        (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("error: ")]
        return line

    evaluates = "--stage", "calibrate", "--stage", "evaluate", "--set", f"workdir={work}"
    said = [
        refused(search.main, work, "oak"),
        refused(run.main, tree / "spec.yaml", *evaluates),
        refused(index.main, "verify", work),
    ]
    assert not list(work.glob("evaluate/*/record.json"))
    with pytest.raises(InputError) as caught:
        near_groups(work, 2)
    for line in (*said, str(caught.value)):
        assert re.search(r"nodes\.parquet: SHA-256 is .* was published\. Return to a version without this file", line)
    assert re.search(r"nodes\.parquet: cannot be read: ", refused(inspect.main, work, "--document", "d0"))


def test_what_does_not_fit_the_corpus_is_one_line(tiny_spec, tiny_corpus, capsys):
    alone = f"{{type: jsonl, documents: {tiny_corpus}/corpus.jsonl, columns: {{id: _id}}}}"
    for sections, said in (
        ({"router": "{type: retreever, depth: 8}"}, "router.depth: got 8, 256 leaves; allowed: at most as many leaves"),
        ({"train": "{type: hce, tree: {levels: 3}}"}, "train.tree.levels: got 3; allowed: at most 2"),
        ({"corpus": alone, "train": "{objective: supervised}"}, "train.objective: got 'supervised'"),
        ({"corpus": alone, "train": "{type: hce, objective: joint}"}, "train.objective: got 'joint', but the corpus"),
    ):
        assert run.main([str(tiny_spec(**sections)), "--plan"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line

"""A newly trained model is served at once, with vectors moved from the index before; texts are encoded later."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rayhier import run
from rayhier.dataset.documents import document_texts
from rayhier.index import __main__ as index
from rayhier.index import carry_vectors, embed_carried
from rayhier.index.verify import verify
from rayhier.model.vector_map import VectorMap
from rayhier.search.index import open_leaf_map
from rayhier.search.model import Model
from rayhier.search.searcher import Searcher
from rayhier.search.stored import Listing
from rayhier.storage import columns, current
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import LeafMap

pytestmark = pytest.mark.usefixtures("cluster")
LAST = ["--set", "encoder.train=last_layer"]


def states(printed: str) -> dict[str, str]:
    return {step["stage"]: step["state"] for step in json.loads(printed.splitlines()[-1])["steps"]}


def rows(leaf_map: LeafMap) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Vectors of all documents, and the texts that are encoded, by their ids."""
    tables = [leaf_map.read(shard, ["doc_id", "title", "text", "rank", "vector"]) for shard in leaf_map.manifest.shards]
    table = pa.concat_tables([table.filter(pc.equal(table["rank"], 0)) for table in tables])
    names = table["doc_id"].to_pylist()
    assert len(names) == len(set(names)) == leaf_map.manifest.documents
    return (
        dict(zip(names, columns.matrix(table["vector"]), strict=True)),
        dict(zip(names, document_texts(table), strict=True)),
    )


def test_carried_then_encoded(
    tiny_spec: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    here: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here()
    monkeypatch.setattr(carry_vectors, "SAMPLE", 60)
    monkeypatch.setattr(embed_carried, "BATCH", 50)
    work = tmp_path / "work"
    spec = str(tiny_spec())
    build = [part for stage in ("corpus", "embed", "train", "index") for part in ("--stage", stage)]
    assert run.main([spec, *build]) == 0
    first = current.read(work)
    (tmp_path / "more.jsonl").write_text('{"_id": "extra", "title": "", "text": "river stone lantern"}\n')
    assert index.main(["add", str(work), str(tmp_path / "more.jsonl")]) == 0
    (gone,) = [document.id for document in Searcher.open(work).documents(Listing("", 1))]
    assert index.main(["delete", str(work), gone]) == 0
    capsys.readouterr()

    assert run.main([spec, *LAST, "--set", "encoder.adopt=always", "--carry"]) == 0
    printed = capsys.readouterr()
    assert states(printed.out)["index"] == "carried"
    now = current.read(work)
    assert (now.before, now.artifacts["model"] != first.artifacts["model"]) == (first.artifacts["index"], True)
    opened = open_leaf_map(work, now)
    artifact = Artifact.open(work / "index" / now.artifacts["index"])
    assert opened.manifest.carried == artifact.record.counts["carried"] > 0
    pair = first.artifacts["model"], now.artifacts["model"]
    assert VectorMap.load(artifact.root / "map", pair).cosine == artifact.record.counts["cosine"]
    _, texts = rows(opened)
    assert texts["extra"] == "river stone lantern"
    assert gone not in texts
    verify(opened.root)
    assert run.main([spec, *LAST, "--set", "encoder.adopt=always", "--carry"]) == 0  # again: nothing is to be done
    assert states(capsys.readouterr().out)["index"] == "carried"
    assert current.read(work) == now
    assert index.main(["compact", str(work)]) == 2
    assert "carried from another model; allowed: rayhier index embed" in capsys.readouterr().err

    assert index.main(["embed", str(work)]) == 0
    done = open_leaf_map(work, now)
    assert (done.manifest.carried, any(shard.carried for shard in done.manifest.shards)) == (0, False)
    vectors, texts_after = rows(done)
    assert texts_after == texts
    true = Model.of_workdir(work, now).encode([texts[name] for name in vectors]).numpy
    assert np.vecdot(np.stack(list(vectors.values())), true).min() > 0.999
    verify(done.root)
    stages = json.loads((artifact.folder / "carry.json").read_text())["stages"]
    assert [stage["stage"] for stage in stages][:2] == ["before", "carried"]
    assert stages[-1]["stage"] == "100% encoded"
    assert [stage["left"] for stage in stages[1:]] == sorted((stage["left"] for stage in stages[1:]), reverse=True)
    assert index.main(["embed", str(work)]) == 0
    assert "no vector was carried" in capsys.readouterr().out

    capsys.readouterr()
    assert run.main([spec, *LAST, "--set", "encoder.adopt=always", *build]) == 0
    assert states(capsys.readouterr().out)["index"] == "built"
    whole = current.read(work)
    assert (whole.before, whole.artifacts["model"]) == (now.artifacts["index"], now.artifacts["model"])
    built, built_texts = rows(open_leaf_map(work, whole))
    assert built_texts == texts
    for name, vector in vectors.items():
        np.testing.assert_allclose(built[name], vector, atol=1e-3)


def test_a_head_on_stored_vectors_is_built_as_ever(
    tiny_spec: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], here: Callable[..., None]
) -> None:
    here()
    spec = str(tiny_spec())
    assert run.main([spec, "--carry"]) == 0
    assert states(capsys.readouterr().out)["index"] == "built"
    assert run.main([spec, "--set", "evaluate.seeds=[1]", "--carry"]) == 0
    assert states(capsys.readouterr().out)["index"] == "built"
    now = current.read(tmp_path / "work")
    assert open_leaf_map(tmp_path / "work", now).manifest.carried == 0
    assert now.before is not None
    assert run.main([spec, "--carry", "--stage", "index"]) == 2
    assert "--carry: got --stage or --fresh too" in capsys.readouterr().err

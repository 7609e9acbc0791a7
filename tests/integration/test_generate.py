"""Generated pairs from a file to a trained encoder."""

import json
from pathlib import Path

import pytest

from rayhier import run
from rayhier.corpus import generated as stage
from rayhier.storage import files, parquet
from rayhier.storage.artifact import Artifact

pytestmark = pytest.mark.usefixtures("cluster")

TRAIN = "type: hce, epochs: 2, batch_size: 64, tree: {branching: 16}"


def made(work: Path, kind: str) -> Artifact:
    return Artifact.open(next((work / kind).glob("*/record.json")).parent)


def table(artifact: Artifact, name: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = parquet.read(artifact.path(name)).to_pylist()
    return rows


def test_a_file_of_pairs_trains_an_encoder_without_judged_ones(tiny_corpus, tiny_spec, tmp_path, capsys, monkeypatch):
    """Rejected rows are counted and listed; a file of no pair is refused in one line."""
    work, path = tmp_path / "work", tmp_path / "pairs.jsonl"
    (tiny_corpus / "qrels" / "train.tsv").unlink()
    spec = str(tiny_spec(train=f"{{{TRAIN}, generated: {path}}}"))
    path.write_text("pine\td1")
    assert run.main([spec, "--stage", "corpus", "--stage", "generate"]) == 2
    refused = f"{path}: no pair accepted (1 read, 0 accepted, 1 rejected (not JSON 1)); allowed: UTF-8, one JSON"
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: train.generated: {refused}")
    assert not list(work.glob("generated/*/record.json"))
    told: list[str] = []
    monkeypatch.setattr(stage, "say", told.append)
    monkeypatch.setattr(stage, "log", told.append)
    pairs = [{"query": f"pine {n}", "doc_id": f"d{n}"} for n in range(100, 130)]
    path.write_text("".join(json.dumps(pair) + "\n" for pair in [*pairs, pairs[0], {"query": "oak"}]))
    assert run.main([spec, "--stage", "corpus", "--stage", "generate"]) == 0
    assert told[0] == "  generated pairs: 32 read, 30 accepted, 2 rejected (duplicate pair 1, missing id 1)"
    assert told[1] == "  generated queries: 30, for 30 documents"
    assert told[2].endswith("/rejected.parquet")
    generated = made(work, "generated")
    assert [row["row"] for row in table(generated, "rejected.parquet")] == [31, 32]
    assert run.main([spec, "--stage", "embed", "--stage", "train"]) == 0
    vectors, model = made(work, "vectors"), made(work, "model")
    queries = [row["query_id"] for row in table(generated, "queries.parquet")]
    assert [row["query_id"] for row in table(vectors, "generated.parquet")] == queries
    assert vectors.record.inputs.keys() == {"corpus", "generated"}
    assert model.record.inputs.keys() == {"corpus", "generated", "vectors"}
    history = files.read_json(model.path("metrics.json"))
    assert [row["epoch"] for row in history["encoder"]] == [0, 1, 2]
    assert history["encoder"][2]["loss_total"] < history["encoder"][1]["loss_total"]

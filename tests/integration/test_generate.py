"""Generated pairs from the corpus to a trained encoder, written by a model and brought in a file."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rayhier import run
from rayhier.generate import ray as stage
from rayhier.job.plan import make_plan
from rayhier.spec import load
from rayhier.storage import files
from rayhier.storage.artifact import Artifact

from ..conftest import one_worker_each

pytestmark = pytest.mark.usefixtures("cluster")

TRAIN = "type: hce, epochs: 2, batch_size: 64, tree: {branching: 16}"


def made(work: Path, kind: str) -> Artifact:
    return Artifact.open(next((work / kind).iterdir()))


def table(artifact: Artifact, name: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = files.read_table(artifact.path(name)).to_pylist()
    return rows


def test_a_model_writes_queries_that_train_an_encoder(
    tiny_spec: Callable[..., Path],
    tiny_corpus: Path,
    tiny_writer: Path,
    tmp_path: Path,
    here: Callable[..., None],
) -> None:
    """Of a corpus in two files, without train judgements; two workers of Ray write what one in this process does."""
    lines = (tiny_corpus / "corpus.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "documents").mkdir()
    for number in range(2):
        (tmp_path / "documents" / f"{number}.jsonl").write_text("".join(lines[number * 20 : number * 20 + 20]))
    judged = tmp_path / "test.tsv"
    judged.write_text("".join(f"q{n}\td{n}\t1\n" for n in range(20)))
    written = f"{{type: model, model: {tiny_writer}, per_document: 2, most: 30}}"
    listed = f"documents: {tmp_path}/documents, queries: {tiny_corpus}/queries.jsonl, judgements: {{test: {judged}}}"
    lines = {
        "corpus": f"{{type: jsonl, {listed}, columns: {{id: _id}}}}",
        "train": f"{{{TRAIN}, objective: supervised, generated: {written}}}",
    }
    stages = [part for stage in ("corpus", "generate", "embed", "train") for part in ("--stage", stage)]
    here("corpus", "embed", "train")
    two = tiny_spec(**lines, cluster=one_worker_each(embed="{workers: 2}"))
    assert run.main([str(two), *stages]) == 0
    work = tmp_path / "work"
    generated, vectors, model = (made(work, kind) for kind in ("generated", "vectors", "model"))
    counts = generated.record.counts
    assert counts["pairs"]["read"] == 60
    assert counts["pairs"]["accepted"] == len(table(generated, "pairs.parquet")) > 30
    queries = [row["query_id"] for row in table(generated, "queries.parquet")]
    assert [row["query_id"] for row in table(vectors, "generated.parquet")] == queries
    assert vectors.record.counts["vectors"] == 40 + len(queries), "nothing trains on queries of the test split"
    assert vectors.record.inputs.keys() == {"corpus", "generated"}
    assert model.record.inputs.keys() == {"corpus", "generated", "vectors"}
    history = files.read_json(model.path("metrics.json"))
    assert [row["epoch"] for row in history["encoder"]] == [0, 1, 2]
    assert history["encoder"][2]["loss_total"] < history["encoder"][1]["loss_total"]

    here("generate")
    again = tiny_spec(**lines, workdir=str(tmp_path / "again"))
    shutil.copytree(work / "corpus", tmp_path / "again" / "corpus")
    assert run.main([str(again), "--stage", "generate"]) == 0
    assert made(tmp_path / "again", "generated").record.files == generated.record.files


def test_a_file_of_pairs_joins_the_judged_ones(
    embedded: Path,
    tiny_spec: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rejected rows are counted and listed; a file of another corpus is refused in one line, like one of no pair."""
    work, path = tmp_path / "work", tmp_path / "pairs.jsonl"
    shutil.copytree(embedded / "work" / "corpus", work / "corpus")
    spec = str(tiny_spec(train=f"{{{TRAIN}, generated: {{type: file, path: {path}}}}}"))
    for line, said in (
        (
            '{"query": "pine", "doc_id": "x"}',
            f"{path}: none of its 1 pairs names a document of the corpus (the first: 'x')",
        ),
        (
            "pine\td1",
            f"{path}: no pair accepted (1 read, 0 accepted, 1 rejected (not JSON 1)); allowed: UTF-8, one JSON",
        ),
    ):
        path.write_text(line)
        assert run.main([spec, "--stage", "generate"]) == 2
        assert f"\nerror: train.generated.path: {said}" in f"\n{capsys.readouterr().err.splitlines()[-1]}"
        assert not list(work.glob("generated/*/record.json"))
    told: list[str] = []
    monkeypatch.setattr(stage, "say", told.append)
    pairs = [{"query": f"pine {n}", "doc_id": f"d{n}"} for n in range(100, 130)]
    path.write_text("".join(json.dumps(pair) + "\n" for pair in [*pairs, pairs[0], {"query": "oak"}]))
    assert run.main([spec, "--stage", "generate"]) == 0
    assert told[0] == "  generated pairs: 32 read, 30 accepted, 2 rejected (duplicate pair 1, missing id 1)"
    assert told[1] == "  generated queries: 30, for 30 documents"
    assert told[2].endswith("/rejected.parquet")
    generated = Artifact.open(make_plan(load(spec)).step("generated").place.folder)
    assert [row["row"] for row in table(generated, "rejected.parquet")] == [31, 32]

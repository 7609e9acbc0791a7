"""The whole command on a tiny corpus: what it leaves on storage, and that a second run has nothing to do."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import ir_measures
import numpy as np
import pyarrow.parquet as pq
import pytest

import rayhier
from rayhier import run
from rayhier.search import __main__ as search_command
from rayhier.search.snapshot import Snapshot
from rayhier.storage import current
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.writer_lease import leased

from ..toys import evaluated

BASELINES = (
    "exact",
    "exact_same_encoder",
    "faiss_ivf",
    "faiss_ivf_same_encoder",
    "faiss_ivf_spill",
    "hnsw",
    "bm25",
)
pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def ran(tiny_spec, tmp_path, capsys):
    """Spec, workdir and standard output of one run, whose stages but `train` have two workers."""
    measured = f"{{measures: [nDCG@10, R@10], lists: 8, baselines: [{', '.join(BASELINES)}]}}"
    spec = tiny_spec(evaluate=measured, cluster="{train: {workers: 1}}")
    assert run.main([str(spec)]) == 0
    return spec, tmp_path / "work", capsys.readouterr().out


def artifact(work: Path, kind: str) -> Artifact:
    return current.artifact(work, current.read(work), kind)


def test_one_run(ran, capsys, here):
    """Every stage on Ray; what is then done again, in this process."""
    spec, work, out = ran
    summary = json.loads(out.splitlines()[-1])
    assert [step["state"] for step in summary["steps"]] == ["built"] * 7
    for kind in ("corpus", "vectors", "test", "model", "index", "calibration", "evaluate"):
        artifact(work, kind).verify()
        assert not list((work / kind).rglob("scratch"))
    _every_document_once(work)
    _report_is_whole(work)
    _search_is_the_evaluated_one(work, "learned_ivf")
    _one_process_measures_the_same(work)
    _other_libraries_open_the_encoder(work)
    assert "Index: it finds" in out
    assert "judged relevant" in (work / "report.md").read_text()

    assert run.main([str(spec)]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [step["state"] for step in again["steps"]] == ["published"] * 7
    assert [step["fingerprint"] for step in again["steps"]] == [step["fingerprint"] for step in summary["steps"]]

    here()
    with (spec.parent / "corpus" / "queries.jsonl").open("a") as opened:
        opened.write('{"_id": "more", "text": "one more test query"}\n')
    with (spec.parent / "corpus" / "qrels" / "test.tsv").open("a") as opened:
        opened.write("more\td1\t1\n")
    assert run.main([str(spec)]) == 0
    more = {step["stage"]: step["state"] for step in json.loads(capsys.readouterr().out.splitlines()[-1])["steps"]}
    assert {stage for stage, state in more.items() if state == "built"} == {"test", "evaluate"}

    with leased(artifact(work, "index").root):  # as a server that writes has it
        for stage in ("index", "train"):
            assert run.main([str(spec), "--fresh", "--stage", stage]) == 2
            assert "a server writes to this index" in capsys.readouterr().err
    assert run.main([str(spec), "--fresh", "--stage", "evaluate"]) == 0
    fresh = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(step["stage"], step["state"]) for step in fresh["steps"]] == [("evaluate", "built")]

    assert search_command.main([str(work), "river stone", "-k", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9  # header, three results of two lines, words, visits
    assert lines[-2].startswith("compared the words of all ")
    assert lines[-1].startswith("visited ")

    assert run.main([str(spec), "--fresh", "--stage", "train"]) == 0
    assert [len(list((work / kind).glob("*/record.json"))) for kind in ("vectors", "model", "index")] == [1, 1, 0]


def test_two_leaves_a_document(built, tmp_path, here):
    """A joint router knows no cells: the means of the leaves choose the second leaf."""
    here()
    work = shutil.copytree(built / "work", tmp_path / "work")
    own = {"workdir": work, "router.type": "ehi", "index.leaves_per_document": 2}
    own |= {"router.warm_start": "none", "train.loss": "{intra_leaf_form: triplet}"}
    given = [part for key, value in own.items() for part in ("--set", f"{key}={value}")]
    assert run.main([str(built / "spec.yaml"), *given]) == 0
    leaf_map = LeafMap.open(artifact(work, "index").root)
    rows = [
        row
        for shard in leaf_map.manifest.shards
        for row in leaf_map.read(shard, ["doc_id", "leaf", "rank", "leaves"]).to_pylist()
    ]
    assert len({(row["doc_id"], row["rank"]) for row in rows}) == len(rows) == 2 * leaf_map.manifest.documents
    assert all(row["leaves"][row["rank"]] == row["leaf"] and len(set(row["leaves"])) == 2 for row in rows)
    assert sum(leaf_map.manifest.counts) == len(rows)
    for system, compared in (("ehi", 1.0), ("faiss_ivf_spill", 2.0)):  # ours compares a document once
        curve = json.loads((work / "report.json").read_text())["curves"][system]
        assert curve[-1]["visited_mean"] == 1.0
        assert compared < curve[-1]["cost_mean"] < compared + 1
    _search_is_the_evaluated_one(work, "ehi")


def _every_document_once(work: Path) -> None:
    corpus, leaf_map = artifact(work, "corpus"), LeafMap.open(artifact(work, "index").root)
    expected = sorted(
        one for name in corpus.names("documents/") for one in pq.read_table(corpus.path(name))["doc_id"].to_pylist()
    )
    found: list[tuple[str, int]] = []
    for shard in leaf_map.manifest.shards:
        table = leaf_map.read(shard, ["doc_id", "leaf", "rank", "leaves"])
        leaves, ranks = table["leaf"].to_numpy(), table["rank"].to_numpy()
        assert np.array_equal(leaves, np.repeat(shard.leaves, np.diff(shard.offsets)))
        assert all(
            own[rank] == leaf for own, rank, leaf in zip(table["leaves"].to_pylist(), ranks, leaves, strict=True)
        )
        found += zip(table["doc_id"].to_pylist(), ranks.tolist(), strict=True)
    assert sorted(name for name, rank in found if rank == 0) == expected
    assert len(set(found)) == len(found) == sum(leaf_map.manifest.counts)
    # Half of them lie near a border, and in two leaves.
    assert len(found) == pytest.approx(1.5 * len(expected), rel=0.1)
    sizes = pq.read_table(leaf_map.root / "leaves.parquet")["size"].to_pylist()
    assert sizes == leaf_map.manifest.counts


def _report_is_whole(work: Path) -> None:
    report = json.loads((work / "report.json").read_text())
    names = {"learned_ivf", *BASELINES, "learned_ivf+bm25", "exact+bm25"}
    assert set(report["systems"]) == set(report["seconds"]) == names
    assert set(report["curves"]) == {"learned_ivf", *BASELINES[2:6]}
    ends = {"learned_ivf": "exact_same_encoder", "faiss_ivf": "exact", "faiss_ivf_spill": "exact_same_encoder"}
    for system, level in ends.items():
        last = report["curves"][system][-1]
        assert last["visited_mean"] == 1.0
        assert last["R@10"] == pytest.approx(report["systems"][level]["R@10"], abs=1e-6)
    assert {(row["system"], row["baseline"]) for row in report["significance"]} == {
        *(("learned_ivf", name) for name in BASELINES[2:6]),
        ("exact_same_encoder", "exact"),
        ("learned_ivf+bm25", "learned_ivf"),
        ("learned_ivf+bm25", "bm25"),
        ("learned_ivf+bm25", "exact+bm25"),
    }
    assert all(row["low"] <= row["difference"] <= row["high"] for row in report["significance"])
    # A document's own words are asked for.
    assert report["systems"]["bm25"]["R@10"] > 0.9
    root = artifact(work, "evaluate").root
    qrels = pq.read_table(artifact(work, "test").path("judgements/test.parquet")).to_pylist()
    for system in names:
        run_file = list(ir_measures.read_trec_run(str(root / "runs" / f"{system}.seed0.trec")))
        judged = [ir_measures.Qrel(row["query_id"], row["doc_id"], row["grade"]) for row in qrels]
        measured = ir_measures.calc_aggregate([ir_measures.parse_measure("nDCG@10")], judged, run_file)
        assert next(iter(measured.values())) == pytest.approx(report["systems"][system]["nDCG@10"], abs=1e-4)
    for plot in ("recall_visited", "leaf_sizes", "training"):
        assert (root / "plots" / f"{plot}.svg").stat().st_size > 1000
        assert (root / "plots" / f"{plot}.png").read_bytes().startswith(b"\x89PNG")
    text = (work / "report.md").read_text()
    assert all((work / link.split(")")[0]).is_file() for link in text.split("](")[1:])


def _other_libraries_open_the_encoder(work: Path) -> None:
    """WORKDIR/encoder is the trained encoder, in sentence-transformers' layout."""
    from sentence_transformers import SentenceTransformer

    texts = ["moss stone river", "oak"]
    with rayhier.open(work) as index:
        ours = index.encode(texts)
    assert SentenceTransformer(str(work / "encoder")).encode(texts) == pytest.approx(ours, abs=1e-5)


def _one_process_measures_the_same(work: Path) -> None:
    """What actors answered, a single process answers too."""
    corpus, vectors, test, model, index = (
        artifact(work, kind) for kind in ("corpus", "vectors", "test", "model", "index")
    )
    alone = evaluated(current.read(work).spec, corpus, vectors, {0: (model, index)}, test=test)
    curves = json.loads((work / "report.json").read_text())["curves"]
    assert set(curves) == set(alone.seeds[0].curves)
    for name, curve in alone.seeds[0].curves.items():
        for point, row in zip(curve, curves[name], strict=True):
            counted = replace(point, microseconds=None).flat()
            assert {key: row[key] for key in counted} == pytest.approx(counted, abs=2e-6)
            assert row["microseconds"] > 0


def _search_is_the_evaluated_one(work: Path, system: str) -> None:
    """The searcher, from text, finds what the evaluation's TREC run has, from stored vectors."""
    test = artifact(work, "test")
    texts = {row["query_id"]: row["text"] for row in pq.read_table(test.path("queries.parquet")).to_pylist()}
    ranked: dict[str, list[tuple[str, float]]] = {}
    for row in ir_measures.read_trec_run(str(artifact(work, "evaluate").root / "runs" / f"{system}.seed0.trec")):
        ranked.setdefault(row.query_id, []).append((row.doc_id, row.score))
    answers = Snapshot.open(work).search([texts[query] for query in ranked], mode="dense")
    for answer, expected in zip(answers, ranked.values(), strict=True):
        assert [hit.score for hit in answer.hits] == pytest.approx([score for _, score in expected], abs=1e-5)
        assert {hit.leaf for hit in answer.hits} <= set(answer.leaves)

"""From a folder of documents to a search that a cross-encoder re-ranks within a budget of calls."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import ray
from ray import serve
from ray.util import list_named_actors

import rayhier
from rayhier import run
from rayhier.command import STOPPED
from rayhier.evaluate.report import Report
from rayhier.scores.scorer import open_scorer
from rayhier.search import __main__ as shell
from rayhier.search.rerank import RerankWeight
from rayhier.search.snapshot import Snapshot
from rayhier.serve.app import checked, deploy
from rayhier.serve.client import Client
from rayhier.serve.config import look
from rayhier.serve.errors import ApiError
from rayhier.storage import columns, current, parquet
from rayhier.train.cross_encoder import phase

from ..conftest import one_worker_each
from .in_process import make

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(600)]

LASTING = (".parquet", ".safetensors")
SHIPPED = Path(__file__).parents[2] / "jobs" / "serve.yaml"
LINES = {
    "scores": "{judged: 10, per: item, count: 2, factors: transductive}",
    "search": "{k: 10, beam: 4, rerank: {type: axn, budget: 12, rounds: 3}}",
    "evaluate": "{measures: [nDCG@10, R@10], lists: 8, baselines: [exact]}",
    "cluster": one_worker_each(),
}


def reads(model: Path, **own: object) -> str:
    section = {"model": str(model), "max_length": 32, "precision": "float32", "train": {"epochs": 2}, **own}
    return json.dumps(section)


@pytest.fixture
def reranked(embedded, tmp_path, tiny_spec, tiny_model):
    """`reranked(**lines)` writes a spec that re-ranks, over a copy of the run up to the vectors."""
    shutil.copytree(embedded / "work", tmp_path / "work")
    return lambda **lines: tiny_spec(**{**LINES, "cross_encoder": reads(tiny_model), **lines})


def artifact(work: Path, kind: str):
    return current.artifact(work, current.read(work), kind)


@pytest.mark.slow
def test_a_run_on_ray_re_ranks_what_it_searches_and_serves(reranked, tmp_path, port, capsys):
    work = tmp_path / "work"
    make(reranked(), "test", "train", "index")
    capsys.readouterr()
    assert run.main([str(reranked())]) == 0
    assert "and 12 calls of the cross-encoder" in capsys.readouterr().out
    report = Report.read(work / "report.json")
    row = report.systems["learned_ivf+axn"]
    assert row.calls == 12
    assert row.visited >= report.systems["learned_ivf"].visited - 2e-6  # documents that only words found count too
    assert "this index + axn" in (work / "report.md").read_text()
    assert list(artifact(work, "evaluate").names("runs/learned_ivf+axn"))

    # Every document got two scores, each pair once, as the cross-encoder scores it.
    scores = artifact(work, "scores")
    table = columns.read([scores.path(name) for name in scores.names("pairs/")], ["query", "item", "score"])
    pairs = list(zip(table["query"].to_pylist(), table["item"].to_pylist(), strict=True))
    assert len(pairs) == len(set(pairs)) == 2 * 240
    queries = parquet.read(scores.path("queries.parquet"))
    texts = dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True))
    assert len(texts) == 10
    corpus = artifact(work, "corpus")
    held = columns.read([corpus.path(name) for name in corpus.names("documents/")], ["doc_id", "title", "text"])
    bodies = {row["doc_id"]: f"{row['title']} {row['text']}".strip() for row in held.to_pylist()}
    spec, published = current.read(work).spec, artifact(work, "cross_encoder")
    scorer = open_scorer(published, spec.cross_encoder)
    some = pairs[::7]
    again = scorer([texts[query] for query, _ in some], [bodies[item] for _, item in some])
    np.testing.assert_allclose(again, table["score"].to_numpy()[::7], atol=1e-5)

    # The shell's answers are those of the search: those read first, by the scores that the cross-encoder gives.
    searcher = Snapshot.open(work)
    question = texts[pairs[0][0]]
    (answer,) = searcher.search([question], k=20)
    assert answer.calls == 12
    assert [hit.estimated for hit in answer.hits] == [False] * 12 + [True] * (len(answer.hits) - 12)
    read = [hit for hit in answer.hits if not hit.estimated]
    found = scorer([question] * 12, [f"{hit.title} {hit.text}".strip() for hit in read])
    weight = RerankWeight.open(artifact(work, "calibration"))
    assert weight is not None
    counts = artifact(work, "calibration").record.counts
    assert (counts["beside"], counts["reranked"]) == (weight.beside, weight.queries)
    assert weight.queries > 0
    assert searcher.rules.usual_mode == "hybrid"
    (plain,) = searcher.search([question], k=240, budget=0)
    base = {hit.id: hit.score for hit in plain.hits}
    expected = [score + weight.beside * base[hit.id] for hit, score in zip(read, found, strict=True)]
    np.testing.assert_allclose([hit.score for hit in read], expected, atol=1e-4)
    assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
    assert shell.main([str(work), question, "-k", "15"]) == 0
    shown = capsys.readouterr().out
    assert "the cross-encoder read 12 documents" in shown
    assert shown.count("~") == 4  # three estimated scores, and what the mark means
    assert shell.main([str(work), question, "--budget", "3"]) == 0
    assert "read 3 documents" in capsys.readouterr().out
    _one_process_makes_the_same(reranked, work, tmp_path / "here")
    _served(work, tmp_path, port)


def _one_process_makes_the_same(reranked: Callable[..., Path], work: Path, other: Path) -> None:
    """To the last bit, in the stages of re-ranking."""
    for kind in ("corpus", "vectors", "model", "index"):
        shutil.copytree(work / kind, other / kind)
    make(reranked(workdir=str(other)), "cross_encoder", "scores", "factors", "calibrate")
    for kind in ("cross_encoder", "scores", "factors", "calibration"):
        made = [artifact(folder, kind).record.files for folder in (work, other)]
        same = [[(file.name, file.sha256) for file in each if file.name.endswith(LASTING)] for each in made]
        assert same[0] == same[1], kind


@pytest.mark.parametrize("head", ["cls", "emb"])
def test_a_trained_cross_encoder_loads_elsewhere(head, reranked, tmp_path, tiny_model, here, monkeypatch):
    """A `cls` head in sentence-transformers, with equal scores; either as the model of another spec."""
    here()
    work = tmp_path / "work"
    stages = [part for stage in ("train", "index", "cross_encoder", "calibrate") for part in ("--stage", stage)]
    monkeypatch.setattr(phase, "RATE", 1e-2)  # enough that an epoch is better than none
    spec = reranked(cross_encoder=reads(tiny_model, head=head, train={"epochs": 12}), scores="null")
    assert run.main([str(spec), *stages]) == 0
    published = artifact(work, "cross_encoder")
    assert published.record.counts["best"]["epoch"] >= 1
    folder = published.local("model")
    queries, items = ["leaf root", "pine oak ash", "wolf"], ["a leaf on a root", "an oak and a pine", "x " * 80]
    ours = open_scorer(published, current.read(work).spec.cross_encoder)(queries, items)
    if head == "cls":
        from sentence_transformers import CrossEncoder

        theirs = CrossEncoder(str(folder), max_length=32, device="cpu", local_files_only=True)
        np.testing.assert_allclose(ours, theirs.predict(list(zip(queries, items, strict=True))), atol=1e-4)
    again = reranked(cross_encoder=reads(folder, head=head, train=None, beside=0.5), scores="null")
    assert run.main([str(again), *stages]) == 0
    untrained = artifact(work, "cross_encoder")
    assert untrained.folder != published.folder
    np.testing.assert_array_equal(open_scorer(untrained, current.read(work).spec.cross_encoder)(queries, items), ours)
    opened = Snapshot.open(work).reranker
    assert opened is not None
    assert opened.base_weight == 0.5


def _served(work: Path, tmp_path: Path, port: int) -> None:
    """Served answers are those of offline search; without the cross-encoder they are the scan's, and say so."""
    config = tmp_path / "serve.yaml"
    config.write_text(SHIPPED.read_text().replace("token_file: null", "limits: {queue_seconds: 30}"))
    local = checked(look(config, str(work), None, port))
    try:
        deploy(local)
        client, searcher = Client(local.url), Snapshot.open(work)
        index = client.index()
        assert (index.rerank, index.budget) == ("axn", 12)
        texts = ["leaf root branch", "stone cloud rain", "wolf bear deer hare moss"]
        offline = searcher.search(texts, k=20)
        with ThreadPoolExecutor(3) as threads:
            alone = list(threads.map(lambda text: client.search(text, k=20, explain=True), texts))
        batch = client.search_batch(texts, k=20).answers
        for wanted, one, other in zip(offline, alone, batch, strict=True):
            for served in (one, other):
                assert (served.calls, served.partial, served.lost) == (12, False, [])
                assert [hit.estimated for hit in wanted.hits] == [result.estimated for result in served.results]
                scores = [result.score for result in served.results]
                np.testing.assert_allclose(scores, [hit.score for hit in wanted.hits], atol=1e-4)
            assert one.ms["rerank"] > 0
            assert [leaf.leaf for leaf in one.explain.leaves] == one.visited.leaves
        plain = client.search(texts[0], k=5, rerank=False)
        assert plain.calls is None
        expected = searcher.search(texts[:1], k=5, budget=0)[0]
        assert [result.id for result in plain.results] == [hit.id for hit in expected.hits]
        assert client.search(texts[0], budget=3).calls == 3
        ranked = client.rerank(texts[0], [texts[1], texts[0], texts[2]])
        assert sorted(place for place, _ in ranked) == [0, 1, 2]
        logits = open_scorer(artifact(work, "cross_encoder"), current.read(work).spec.cross_encoder)(
            [texts[0]] * 3, [texts[1], texts[0], texts[2]]
        )
        relevances = [score for _, score in ranked]
        assert relevances == sorted(relevances, reverse=True)
        np.testing.assert_allclose(relevances, 1 / (1 + np.exp(-np.sort(logits)[::-1])), atol=1e-4)
        with rayhier.open(work) as opened:
            here = opened.rerank(texts[0], [texts[1], texts[0], texts[2]])
        assert [place for place, _ in here] == [place for place, _ in ranked]
        _fuses(client, searcher, texts)
        with pytest.raises(ApiError, match="budget: got 1001; allowed: 1 to 1000"):
            client.search(texts[0], budget=1001)

        # The cross-encoder is lost and cannot come back, as published no more: answers are the scan's, and name it.
        weights = max(artifact(work, "cross_encoder").root.rglob("*.safetensors"))
        weights.write_bytes(weights.read_bytes()[:-1] + b"?")
        (replica,) = [
            named["name"] for named in list_named_actors(all_namespaces=True) if "rayhier#reranker#" in named["name"]
        ]
        ray.kill(ray.get_actor(replica, namespace="serve"))
        for _ in range(2):
            lost = client.search(texts[0], k=5)
            assert (lost.lost, lost.partial, lost.calls) == (["reranker"], True, None)
            assert [result.id for result in lost.results] == [hit.id for hit in expected.hits]
        with pytest.raises(ApiError, match="strict: reranker did not answer") as caught:
            client.search(texts[0], k=5, strict=True)
        assert caught.value.status == 503
    finally:
        serve.shutdown()


def _fuses(client: Client, searcher: Snapshot, texts: list[str]) -> None:
    """Words are counted in each shard group, so that scores differ from those of one process; what is found is not."""
    assert client.index().modes == ["dense", "bm25", "hybrid"]
    for mode in ("bm25", "hybrid"):
        wanted = searcher.search(texts, k=10, budget=0, mode=mode)
        given = client.search_batch(texts, k=10, mode=mode, rerank=False)
        assert given.mode == mode
        for answer, own in zip(given.answers, wanted, strict=True):
            assert len(answer.results) == len(own.hits)
            scores = [result.score for result in answer.results]
            assert scores == sorted(scores, reverse=True)
            np.testing.assert_allclose(scores, [hit.score for hit in own.hits], rtol=0.5)
            assert answer.visited.leaves == own.leaves
    assert client.search(texts[0], mode="hybrid").calls == 12


def test_queries_kept_for_scores_are_never_trained_on(reranked, tmp_path, tiny_model, here, monkeypatch):
    """Nor are dev queries."""
    here()
    seen: set[str] = set()
    drawn = phase.TrainingGroups.draw

    def spied(self, rows, generator):
        groups = drawn(self, rows, generator)
        seen.update(group.query for group in groups)
        return groups

    monkeypatch.setattr(phase.TrainingGroups, "draw", spied)
    stages = ("cross_encoder", "scores", "train", "index", "calibrate")
    assert run.main([str(reranked()), *(part for stage in stages for part in ("--stage", stage))]) == 0
    kept = set(parquet.read(artifact(tmp_path / "work", "scores").path("queries.parquet"))["text"].to_pylist())
    assert len(kept) == 10
    assert seen
    assert not seen & kept
    corpus = artifact(tmp_path / "work", "corpus")
    dev = set(columns.read([corpus.path("judgements/dev.parquet")], ["query_id"])["query_id"].to_pylist())
    texts = columns.read([corpus.path("queries.parquet")], ["query_id", "text"]).to_pylist()
    assert dev
    assert not seen & {row["text"] for row in texts if row["query_id"] in dev}


def test_a_killed_score_stage_scores_nothing_twice(reranked, tmp_path, here, monkeypatch):
    from rayhier.scores import stage as scores
    from rayhier.scores.scorer import PairScorer

    here()
    monkeypatch.setattr(scores, "PART", 50)
    spec, read = str(reranked()), []
    assert run.main([spec, "--stage", "cross_encoder"]) == 0
    scored = PairScorer._read

    def dying(self, pairs):
        if len(read) == 150:
            raise KeyboardInterrupt
        read.extend(pairs)
        return scored(self, pairs)

    monkeypatch.setattr(PairScorer, "_read", dying)
    assert run.main([spec, "--stage", "scores"]) == STOPPED
    monkeypatch.setattr(PairScorer, "_read", lambda self, pairs: read.extend(pairs) or scored(self, pairs))
    assert run.main([spec, "--stage", "scores"]) == 0
    assert len(read) == len(set(read)) == 480
    stages = ("train", "index", "calibrate")
    assert run.main([spec, *(part for stage in stages for part in ("--stage", stage))]) == 0
    assert artifact(tmp_path / "work", "scores").record.counts["pairs"] == 480


REFUSED = {
    "fewer queries than asked": (
        {"scores": "{judged: 81}", "cross_encoder": "UNTRAINED"},
        "scores.judged: got 81, but the corpus has",
    ),
    "no such model": ({"cross_encoder": "{model: nowhere}"}, "cross_encoder.model: got 'nowhere', no such folder"),
    "no pair to learn from": ({"scores": "{judged: 80}"}, "no judged train pair is left in"),
}


@pytest.mark.parametrize(("lines", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(lines, said, reranked, tiny_model, tmp_path, here, capsys):
    here()
    if lines.get("cross_encoder") == "UNTRAINED":
        lines |= {"cross_encoder": reads(tiny_model, train=None, head="emb")}
    stages = [part for stage in ("cross_encoder", "scores") for part in ("--stage", stage)]
    assert run.main([str(reranked(**lines)), *stages]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "work" / "scores").exists() or not list((tmp_path / "work" / "scores").glob("*/record.json"))

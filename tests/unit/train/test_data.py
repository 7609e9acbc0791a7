"""Which pairs are brought together."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.documents import Documents
from rayhier.dataset.holdout import holdout_rows
from rayhier.dataset.queries import Queries
from rayhier.spec.train import ContrastTraining, EhiTraining, HceTraining
from rayhier.storage import schemas
from rayhier.train.cross_encoder import stage
from rayhier.train.data import POSITIVES, count_pairs, document_pairs, judged_pairs, load_examples
from rayhier.train.phases import dev_and_spans

from ...toys import artifact, embedded, judgements

N, M = 60, 6


@pytest.fixture
def documents():
    vectors = np.random.default_rng(0).normal(size=(N, M)).astype(np.float32)
    return Documents([f"d{row}" for row in range(N)], vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_a_document_in_passages_trains_by_the_one_nearest_to_the_query(documents):
    parents = [f"p{row // 4}" for row in range(N)]
    queries = Queries(["a", "b"], documents.vector_NM[[6, 41]], {"a": {"p1": 1, "p9": 1}, "b": {"p10": 2, "p1": 0}})
    found = judged_pairs(queries, Documents(documents.ids, documents.vector_NM, parents))
    far = 36 + int((documents.vector_NM[36:40] @ documents.vector_NM[6]).argmax())
    assert sorted(found.pair_P2.tolist()) == [[0, 6], [0, far], [1, 41]]
    known = found.known()(np.arange(2)[:, None], np.arange(N)[None, :])
    assert [np.flatnonzero(row).tolist() for row in known] == [[*range(4, 8), *range(36, 40)], [*range(40, 44)]]


@pytest.mark.parametrize("passages", [1, 4])
def test_documents_ask_for_their_nearest_others_and_passages_for_none_of_their_own(documents, passages):
    parent_N, held = np.arange(N) // passages, holdout_rows(documents.ids)
    parents = [f"p{parent}" for parent in parent_N]
    pairs = document_pairs(Documents(documents.ids, documents.vector_NM, parents)).pair_P2
    products = np.where(parent_N[:, None] == parent_N, -np.inf, documents.vector_NM @ documents.vector_NM.T)
    products[:, held] = -np.inf
    asked = np.setdiff1d(np.arange(N), held) if passages == 1 else np.unique(pairs[:, 0])
    wanted = [[row, other] for row in asked for other in np.argsort(-products[row])[:POSITIVES]]
    assert sorted(pairs.tolist()) == sorted(wanted)


def published(tmp_path, documents, grade, dev=1, generated=False):
    """Corpus and vectors: a train query that is judged, and the vectors of two generated queries."""
    judged = judgements([("a", "d3", grade)])
    texts = {"queries.parquet": pa.table([["a"], ["text of a"]], schema=schemas.QUERIES)}
    tables = {"queries.parquet": embedded("query_id", ["a"], documents.vector_NM[:1])}
    if generated:
        tables["generated.parquet"] = embedded("query_id", ["g1", "a"], documents.vector_NM[[4, 6]])
    splits = {"train": {"relevant": int(grade > 0)}, "dev": {"relevant": dev}}
    texts |= {"judgements/train.parquet": judged, "judgements/dev.parquet": judgements([])}
    corpus = artifact(tmp_path / "corpus", "corpus", texts, splits=splits)
    return corpus, artifact(tmp_path / "vectors", "vectors", tables)


@pytest.mark.parametrize(
    ("objective", "grade", "supervised"),
    [("auto", 1, True), ("auto", 0, False), ("supervised", 1, True), ("documents", 1, False)],
)
def test_what_is_trained_on(tmp_path, documents, objective, grade, supervised):
    artifacts = published(tmp_path, documents, grade)
    found = load_examples(EhiTraining(type="ehi", objective=objective), *artifacts, documents)
    wanted = [[0, 3]] if supervised else document_pairs(documents).pair_P2.tolist()
    assert found.pair_P2.tolist() == wanted
    taught = load_examples(ContrastTraining(type="contrast", objective=objective), *artifacts, documents)
    assert (taught.same, taught.pair_P2.tolist()) == (not supervised, wanted if supervised else [])


@pytest.fixture
def generated(tmp_path):
    """Three generated pairs of two queries, one of which has the judged query's id."""
    queries = pa.table([["a", "g1"], ["generated a", "generated b"]], schema=schemas.QUERIES)
    pairs = pa.table([["g1", "a", "g1"], ["d7", "d5", "d9"]], schema=schemas.PAIRS)
    tables = {"queries.parquet": queries, "pairs.parquet": pairs}
    return artifact(tmp_path / "generated", "generated", tables, pairs={"accepted": 3})


@pytest.mark.parametrize("grade", [1, 0])
@pytest.mark.parametrize("objective", ["auto", "supervised", "joint"])
def test_generated_pairs_come_after_the_judged_ones(tmp_path, documents, generated, objective, grade):
    """Each document that a query was written for is a known positive of it; alone they are enough."""
    corpus, vectors = published(tmp_path, documents, grade, generated=True)
    spec = HceTraining(type="hce", objective=objective, generated="p")
    found = load_examples(spec, corpus, vectors, documents, generated)
    judged = [[0, 3]] * grade
    assert sorted(found.pair_P2.tolist()) == [*judged, [1, 7], [1, 9], [2, 5]]
    assert len(found.pair_P2) == count_pairs(spec, corpus, generated) == 3 + grade
    assert list(found.query_texts) == ["text of a", "generated b", "generated a"]
    assert np.array_equal(found.query_QM, documents.vector_NM[[0, 4, 6]])
    known = found.known()(np.arange(3)[:, None], np.arange(N)[None, :])
    assert [np.flatnonzero(row).tolist() for row in known] == [[3] * grade, [7, 9], [5]]
    assert found.answers(documents.results) == {"d5", "d7", "d9", *["d3"] * grade}


def test_where_no_dev_query_is_judged_a_part_of_the_generated_ones_picks_the_best_epoch(tmp_path, documents, generated):
    corpus, vectors = published(tmp_path, documents, 1, dev=0, generated=True)
    dev, spans = dev_and_spans(corpus, vectors, documents, generated)
    assert set(dev.texts) <= {"generated a", "generated b"}
    assert spans is None


def test_of_a_large_corpus_a_cross_encoder_reads_documents_of_pairs_and_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "MOST_DOCUMENTS", 1_000)
    ids, tables = [f"d{row}" for row in range(10_000)], {}
    for split, judged in {"train": ["d7", "d8", "d7"], "dev": ["d9"]}.items():
        tables[f"judgements/{split}.parquet"] = judgements([(f"q{n}", name, 1) for n, name in enumerate(judged)])
    kept = stage.sampled(artifact(tmp_path / "corpus", "corpus", tables, rows=10_000))
    mask = kept(pa.chunked_array([pa.array(ids)])).to_numpy(zero_copy_only=False)
    assert mask[[7, 8, 9]].all()
    assert abs(mask.sum() - 1_000) < 5 * 1_000**0.5
    again = kept(pa.chunked_array([pa.array(ids[::-1])])).to_numpy(zero_copy_only=False)
    assert np.array_equal(again[::-1], mask)

"""Which pairs are scored ahead: queries of each kind, each pair once, the same whatever the corpus's files."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.scores.stage import SPAN_WORDS, choose_pairs, choose_queries
from rayhier.spec import InputError
from rayhier.spec.cross_encoder import ScoresSpec
from rayhier.storage import columns, schemas

from ...toys import artifact, embedded, judgements

N, Q, M = 40, 12, 6


@pytest.fixture
def published(tmp_path, unit):
    """Corpus and vectors of forty documents, of which every fourth has no title and a long text, in some files."""
    rng = np.random.default_rng(0)
    vector_NM, query_QM = unit(rng, N, M), unit(rng, Q, M)
    rows = [
        (f"d{n}", "" if n % 4 == 0 else f"title {n}", " ".join(f"w{n}_{k}" for k in range(9 if n % 4 else 90)))
        for n in range(N)
    ]

    corpus, vectors = {}, {}
    for number, own in enumerate(np.array_split(np.arange(N), 3)):
        named = [list(column) for column in zip(*(rows[n] for n in own), strict=True)]
        corpus[f"documents/{number}.parquet"] = pa.table(named, schema=schemas.DOCUMENTS)
        vectors[f"documents/{number}.parquet"] = embedded("doc_id", named[0], vector_NM[own])
    ids = [f"q{n}" for n in range(Q)]
    corpus["queries.parquet"] = pa.table([ids, [f"asks {n}" for n in range(Q)]], schema=schemas.QUERIES)
    corpus["judgements/train.parquet"] = judgements([(f"q{n}", f"d{n}", 1) for n in range(Q)])
    vectors["queries.parquet"] = embedded("query_id", ids, query_QM)
    made = [artifact(tmp_path / kind, kind, own) for kind, own in {"corpus": corpus, "vectors": vectors}.items()]
    return *made, vector_NM, query_QM


def chosen(spec, published):
    """All pairs (query, document) that are chosen."""
    corpus, vectors, _, query_QM = published
    found = []
    for part in choose_pairs(spec, query_QM, vectors):
        ids = columns.read([corpus.path(part.name)], ["doc_id"])["doc_id"].to_pylist()
        found += [(query, ids[row]) for query, row in zip(part.query_P.tolist(), part.row_P.tolist(), strict=True)]
    assert len(found) == len(set(found))
    return set(found)


def test_the_base_s_best_documents_of_every_query(published):
    _, _, vector_NM, query_QM = published
    best_QK = np.argsort(-(query_QM @ vector_NM.T), axis=1)[:, :7]
    assert chosen(ScoresSpec(count=7), published) == {(q, f"d{n}") for q in range(Q) for n in best_QK[q]}


def test_the_best_queries_of_every_document(published):
    _, _, vector_NM, query_QM = published
    best_KN = np.argsort(-(query_QM @ vector_NM.T), axis=0)[:3]
    expected = {(int(q), f"d{n}") for n in range(N) for q in best_KN[:, n]}
    assert chosen(ScoresSpec(per="item", count=3), published) == expected


def test_all_pairs(published):
    assert chosen(ScoresSpec(count="all"), published) == {(q, f"d{n}") for q in range(Q) for n in range(N)}


def test_queries_of_each_kind(published):
    corpus, vectors, _, _ = published
    table = choose_queries(ScoresSpec(judged=5, spans=4), corpus, vectors)
    kinds = table["kind"].to_pylist()
    assert [kinds.count(kind) for kind in ("judged", "span")] == [5, 4]
    assert len(set(table["query_id"].to_pylist())) == 9
    for row in table.to_pylist():
        match row["kind"]:
            case "judged":
                assert row["text"].startswith("asks ")
            case "span":
                words = row["text"].split()
                assert len(words) == SPAN_WORDS
                assert {word.split("_")[0] for word in words} == {"w" + row["query_id"].removeprefix("span:d")}


def test_fewer_queries_than_asked_are_refused(published):
    with pytest.raises(InputError, match=r"scores\.judged: got 13, but the corpus has 12 judged train queries"):
        choose_queries(ScoresSpec(judged=13), *published[:2])
    with pytest.raises(InputError, match=r"scores\.spans: got 11, but the corpus has 10 documents with a span"):
        choose_queries(ScoresSpec(judged=0, spans=11), *published[:2])

"""PyTerrier's own tests of transformers, and a pipeline of retriever and re-ranker."""

import pandas as pd
import pytest
from pyterrier import testing

import rayhier
from rayhier.adapters.pyterrier import RayhierIndexer, RayhierReranker, RayhierTerrierRetriever

DRAWS = "PyTerrier's drawing fetches a stylesheet from the network"


class Standing:
    """Has the index that the transformers read: PyTerrier's tests give them no fixture."""


@pytest.fixture(scope="module")
def opened(reranking):
    with rayhier.open(reranking) as index:
        yield index


@pytest.fixture(scope="module", autouse=True)
def _transformers(opened):
    Standing.index = opened


class TestRetriever(testing.transformer_test_class(lambda: RayhierTerrierRetriever(Standing.index))):
    test_schematic = pytest.mark.skip(DRAWS)(testing.TransformerTestCase.test_schematic)


class TestReranker(testing.transformer_test_class(lambda: RayhierReranker(Standing.index))):
    test_schematic = pytest.mark.skip(DRAWS)(testing.TransformerTestCase.test_schematic)


def test_it_searches_a_frame_of_queries(opened):
    queries = pd.DataFrame({"qid": ["a", "b"], "query": ["oak", "ash"]})
    results = RayhierTerrierRetriever(opened, num_results=3).transform(queries)
    assert results.groupby("qid").size().to_dict() == {"a": 3, "b": 3}
    assert results["rank"].tolist() == [0, 1, 2] * 2
    assert (RayhierTerrierRetriever(opened) % 2).search("oak").shape[0] == 2


def test_it_writes_what_it_then_finds(index):
    rows = [{"docno": f"n{n}", "text": f"oak leaf {n}", "number": n} for n in range(5)]
    retriever = RayhierIndexer(index).index(rows)
    assert set(retriever.search("oak leaf")["docno"]) == {row["docno"] for row in rows}

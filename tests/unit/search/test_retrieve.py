"""How a search proceeds, driven by hand: the rounds of work that it yields, and what it makes of the replies."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.ranking import Ranking
from rayhier.model.encoded import Encoded
from rayhier.search.request.request import Rules
from rayhier.search.retrieve import Reply, Retriever
from rayhier.search.routing.routes import Routes
from rayhier.search.segment.level_similarity import FlatQuery
from rayhier.spec.search import SearchSpec

LEAVES, ROWS = 8, 16
TEXTS = ["oak", "elm"]
VECTORS = np.eye(2, 3, dtype=np.float32)


def ranking(*queries):
    """A ranking in which each query has scores by id, best first."""
    ids = sorted({name for scores in queries for name in scores})
    lacks = [max(map(len, queries)) - len(scores) for scores in queries]
    score_QK = [[*scores.values(), *[-np.inf] * lack] for scores, lack in zip(queries, lacks, strict=True)]
    row_QK = [[*map(ids.index, scores), *[-1] * lack] for scores, lack in zip(queries, lacks, strict=True)]
    counts = np.array([len(scores) for scores in queries])
    return Ranking(np.array(score_QK, np.float32), np.array(row_QK), pa.table({"id": ids}), counts, counts, counts)


def found_by(ranking):
    """Scores by id of each query, in the order of the ranking."""
    return [
        {ranking.ids[row]: round(float(score), 4) for row, score in zip(rows, scores, strict=True) if row >= 0}
        for rows, scores in zip(ranking.row_QK, ranking.score_QK, strict=True)
    ]


def routes(level=None):
    return Routes(Encoded(VECTORS), np.array([[3], [5]]), model=None, flat=level)


def rules_of(**search):
    return Rules(SearchSpec.model_validate({"k": 2, **search}), LEAVES, ROWS, is_cosine=True, words=True)


def driven(retrieval, *answers):
    """The rounds of a retrieval, each of which the next replies answer, and what it found after the last of them."""
    rounds = []
    try:
        work = next(retrieval)
        for replies in answers:
            rounds.append(work)
            work = retrieval.send(replies)
    except StopIteration as end:
        assert len(rounds) == len(answers), "fewer rounds than replies"
        return rounds, end.value
    raise AssertionError(f"a further round: {work}")


def unwidened(*_):
    raise AssertionError("the router is asked for more leaves")


def test_where_no_number_is_named_queries_that_lack_results_visit_more_leaves():
    rules = rules_of(how="leaves")
    rounds, found = driven(
        Retriever(rules, unwidened)(rules.request(TEXTS), routes()),
        [Reply([ranking({"a": 0.9, "b": 0.8}, {"c": 0.7})])],
        [Reply([ranking({"d": 0.75, "c": 0.7})])],
    )
    assert [len(scan.query_QM) for (scan,) in rounds] == [2, 1]
    assert sorted(rounds[1][0].leaves_QB[0].tolist()) == list(range(LEAVES)), "all, without the router"
    assert found_by(found.ranking) == [{"a": 0.9, "b": 0.8}, {"d": 0.75, "c": 0.7}]


NOTHING = Reply([], [["shards-0", "shards-1"]] * 2)
ALL_LOST = {
    "dense": ({"beam": 1}, {}, None, [NOTHING]),
    "hybrid": ({"beam": 1, "hybrid": {}}, {"mode": "hybrid"}, None, [NOTHING, NOTHING]),
    "bm25": ({"mode": "bm25"}, {}, None, [NOTHING]),
    "level": ({"how": "level"}, {}, FlatQuery(VECTORS, VECTORS), [NOTHING]),
}


@pytest.mark.parametrize(("search", "given", "level", "replies"), ALL_LOST.values(), ids=ALL_LOST)
def test_where_all_parts_are_lost_nothing_is_found(search, given, level, replies):
    rules = rules_of(**search)
    retrieval = Retriever(rules, unwidened)(rules.request(TEXTS, **given), routes(level=level))
    _, found = driven(retrieval, replies)
    assert (found_by(found.ranking), found.lost) == ([{}, {}], [["shards-0", "shards-1"]] * 2)
    assert found.ranking.visited_Q.tolist() == [0, 0]

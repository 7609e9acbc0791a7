"""Documents that stand in for queries."""

import numpy as np
import pyarrow as pa

from rayhier.dataset.holdout import NEIGHBOURS, holdout_rows
from rayhier.evaluate.baselines.documents import BaselineDocuments


def test_a_tenth_is_held_out_whatever_the_order():
    ids = [f"d{row}" for row in range(500)]
    rows = holdout_rows(ids)
    assert len(set(rows)) == 50
    shuffled = np.random.default_rng(0).permutation(ids).tolist()
    assert {shuffled[row] for row in holdout_rows(shuffled)} == {ids[row] for row in rows} != set(ids[:50])


def test_a_passage_asks_for_the_ten_nearest_other_documents(unit):
    ids, parents, vectors = [f"d{row}" for row in range(40)], [f"p{row % 14}" for row in range(40)], unit(0, 40, 8)
    documents = BaselineDocuments(pa.array(ids), pa.array(parents), vectors)
    held = documents.holdout()
    found = held.queries(documents.exact(held.vector_HM, NEIGHBOURS + 1))
    for row in holdout_rows(ids):
        near = [parents[other] for other in np.argsort(-(vectors @ vectors[row]))]
        wanted = [name for name in dict.fromkeys(near) if name != parents[row]][:10]
        assert found.grades[f"d{row}"] == dict.fromkeys(wanted, 1)

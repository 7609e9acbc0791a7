"""Documents that serve as queries, and texts of documents by row."""

import time

import numpy as np
import pyarrow as pa

from rayhier.dataset.documents import Texts
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


def test_texts_are_read_by_row_from_many_chunks_and_from_more_than_two_gigabytes():
    chunks = [pa.array([f"{chunk} {row}" for row in range(10_000)]) for chunk in range(100)]
    texts, rows = Texts(pa.chunked_array(chunks)), np.random.default_rng(0).integers(0, 1_000_000, 256)
    assert texts[rows] == [f"{row // 10_000} {row % 10_000}" for row in rows]
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        texts[rows]
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.001
    long = pa.array(["x" * (1 << 20)] * 26)  # 26 MiB, of which 100 chunks are 2.5 GiB
    texts = Texts(pa.chunked_array([*[long] * 100, pa.array(["end"])]))
    assert [len(text) for text in texts[np.array([2_600, 2_599, 0])]] == [3, 1 << 20, 1 << 20]

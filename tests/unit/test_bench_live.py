"""What the benchmarks of a living index share: documents that never run out, and a page that keeps other sections."""

import numpy as np

from benchmarks.live.stream import BATCH, K, Stream


def stream(documents=1_500):
    rng = np.random.default_rng(0)
    vector_NM = rng.standard_normal((documents, 8), dtype=np.float32)
    vector_NM /= np.linalg.norm(vector_NM, axis=1, keepdims=True)
    return Stream(
        [f"d{n}" for n in range(documents)], [f"text {n}" for n in range(documents)], vector_NM, vector_NM[:5]
    )


def test_exact_search_reads_all_batches(tmp_path):
    stream().write(tmp_path)
    made = Stream.open(tmp_path)
    ids = [*made.first, *made.batch(0).ids, *made.batch(1).ids]
    assert len(set(ids)) == 1_500 + 2 * BATCH
    vector_NM = np.concatenate([made.vector_NM, made.vectors(0), made.vectors(1)])
    for query_M, best in zip(made.query_QM, made.exact(2), strict=True):
        score_N = vector_NM @ query_M
        np.testing.assert_allclose(score_N[[ids.index(name) for name in best]], np.sort(score_N)[::-1][:K], atol=1e-6)

"""What the benchmarks of a living index share: documents that never run out, and a page that keeps other sections."""

import json

import numpy as np

from benchmarks.live import page
from benchmarks.live.changes import FIGURES, Times, lines
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


def test_the_page_has_what_was_measured_and_keeps_the_rest(tmp_path):
    docs = tmp_path / "docs"
    assert "##" not in page.write(tmp_path, docs)
    other = "## A checked history\n\nNo violation.\n"
    (docs / "live.md").write_text(f"# Old\n\n## {page.PARTS['ingest']}\n\nOUTDATED\n\n{other}")
    kinds = {f"search, {kind}": [1.0, 2.0, 4.0] for kind in ("alone", "no changes", "beside changes")}
    times = Times(kinds | {"add": [100.0]}, kinds | {"add": [1.0]}, [], 3.0, 10, {"log": 2})
    for run in (1, 2):
        (tmp_path / FIGURES.format(run)).write_text(json.dumps(times.__dict__))
    text = page.write(tmp_path, docs)
    assert "\n".join(lines([times, times])) in text
    assert "40 changes; not seen by the next search: 0. 99% of searches beside changes took 1.0 times as long" in text
    assert "| search, beside adds | 2 | 1 | 1 | 1 |" in text
    assert "OUTDATED" not in text
    assert text.endswith(other)
    assert page.write(tmp_path, docs) == text

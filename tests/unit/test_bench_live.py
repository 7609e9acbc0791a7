"""What the benchmarks of a living index share: documents that never run out, figures, and their page."""

import numpy as np

from benchmarks.live import gauge, page, replay
from benchmarks.live.changes import FIGURES, Times, lines
from benchmarks.live.stream import BATCH, K, Stream


def stream(documents=1_500):
    rng = np.random.default_rng(0)
    vector_NM = rng.standard_normal((documents, 8), dtype=np.float32)
    vector_NM /= np.linalg.norm(vector_NM, axis=1, keepdims=True)
    return Stream(
        [f"d{n}" for n in range(documents)], [f"text {n}" for n in range(documents)], vector_NM, vector_NM[:5]
    )


def test_a_stream_has_new_ids_and_near_vectors(tmp_path):
    stream().write(tmp_path)
    opened = Stream.open(tmp_path)
    first, second = opened.batch(0), opened.batch(1)
    assert len({*opened.first, *first.ids, *second.ids}) == 1_500 + 2 * BATCH
    assert second.texts[600] == "text 100"
    cosine_B = (second.vector_BM[500:] * opened.vector_NM[:500]).sum(axis=1)
    assert (cosine_B > 0.98).all()
    assert (cosine_B < 1).all()
    np.testing.assert_array_equal(opened.vectors(1), second.vector_BM)


def test_exact_search_reads_all_batches():
    made = stream()
    ids = [*made.first, *made.batch(0).ids, *made.batch(1).ids]
    vector_NM = np.concatenate([made.vector_NM, made.vectors(0), made.vectors(1)])
    for query_M, best in zip(made.query_QM, made.exact(2), strict=True):
        score_N = vector_NM @ query_M
        np.testing.assert_allclose(score_N[[ids.index(name) for name in best]], np.sort(score_N)[::-1][:K], atol=1e-6)


def test_an_ingest_is_counted_until_it_is_settled(tmp_path):
    taken, added = gauge.Taken("some", "documents", 1_000), []
    gauge.ingest(taken, added.append, gauge.Until(0.0), lambda: added.append("settled"))
    assert added == [0, "settled"]
    assert (taken.batches, taken.documents, taken.reached) == (1, BATCH, {})
    made = stream()
    warm = [["none"]] * len(made.query_QM)
    answers, first = iter([*warm, *made.exact(1)]), [f"d{n}" for n in range(K)]
    copies = [f"added-0-{n}" for n in range(K)]
    efforts = {"first": lambda _: first, "half": lambda _: next(answers)[: K // 2], "copies": lambda _: copies}
    gauge.ask(taken, made, efforts)
    assert [asked.effort for asked in taken.searches] == ["first", "half", "copies"]
    assert 0 < taken.searches[0].recall < taken.searches[1].recall == 0.5
    assert taken.searches[2].texts == taken.searches[0].texts >= taken.searches[0].recall
    taken.write(tmp_path, 1)
    taken.write(tmp_path, 2)
    assert gauge.Taken.read(tmp_path, "documents", "some") == [taken, taken]
    assert gauge.Taken.read(tmp_path, "seconds", "some") == []


def test_an_ingest_ends_by_documents_or_seconds():
    taken, added = gauge.Taken("some", "documents"), []
    gauge.ingest(taken, added.append, gauge.Until(60, 250_000), lambda: None)
    assert (taken.documents, list(taken.reached)) == (250_000, ["250000"])


def test_a_difference_names_the_place():
    given = replay.Given(3, "dense", 3, None, "m", 1, 7, ["a", "b", "c"], [3.0, 2.0, 1.0])
    said = replay.difference(given, ["a", "c"], [3.0, 1.0])
    assert "'log': 7" in said
    assert said.endswith("place 1: ['b', 'c'] [2.0, 1.0], then ['c'] [1.0]")


def test_the_page_has_what_was_measured(tmp_path):
    assert "##" not in page.write(tmp_path, tmp_path / "docs")
    kinds = {f"search, {kind}": [1.0, 2.0, 4.0] for kind in ("alone", "no changes", "beside changes")}
    times = Times(kinds | {"add": [100.0]}, kinds | {"add": [1.0]}, [], 3.0, 10, {"log": 2})
    for run in (1, 2):
        (tmp_path / FIGURES.format(run)).write_text(page.json.dumps(times.__dict__))
    page.Figures(
        "Fifty changes.", ["change", "recall"], [["1", ".99"]], {"recall": [[1, 2], [0.99, 0.98]]}, ["x", "y"]
    ).write(tmp_path, "growth")
    text = page.write(tmp_path, tmp_path / "docs")
    assert "\n".join(lines([times, times])) in text
    assert "40 changes; not seen by the next search: 0. 99% of searches beside changes took 1.0 times as long" in text
    assert "| search, beside adds | 2 | 1 | 1 | 1 |" in text
    assert "| search, beside deletes | 4 | 3 | 4 | 4 |" in text
    assert "## Growth, with maintenance and without\n\nFifty changes.\n\n| change | recall |" in text
    assert "Ingest, vectors given\n" not in text
    assert {path.name for path in (tmp_path / "docs" / "images").iterdir()} == {"live-searches.png", "live-growth.png"}
    stream().write(tmp_path / "ingest")
    for run in (1, 2):
        asked, reached = [gauge.Asked("20 leaves", 1.5, 2.5, 0.75 + run / 8, 1.0)], {"250000": 1.0 * run}
        gauge.Taken(
            "rayhier", "documents", 20_000, "here", 1, BATCH, 2.0 * run, 0, [5.0, 6.0], reached, searches=asked
        ).write(tmp_path, run)
    ingested = page.ingest.lines(tmp_path)
    named = page.ingest.NAMES["rayhier"]
    assert any(f"| {named} | 1,000 | 3 (2 to 4) | 375 (250 to 500) |" in line for line in ingested)
    assert f"| {named} | 2,500 | 20 leaves | 0.938 (0.875 to 1.000) | 1.000 | 1.5 | 2.5 |" in ingested
    assert f"| {named} | 2 (1 to 2) |" in ingested
    assert "live-ingest.png" in page.write(tmp_path, tmp_path / "docs")

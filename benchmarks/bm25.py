"""Measure BM25 alone on four English collections: nDCG@10, words, seconds to split texts, and microseconds per query.

nDCG@10 shows what another way to split texts into words changes. The times are those of single queries, from text to
rows and scores. Native code, numpy without native code, and bm25s are compared.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from unittest.mock import patch

import bm25s
import numpy as np

from benchmarks import collection
from benchmarks.commands import Options
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.words import language_of, words
from rayhier.search.words import postings
from rayhier.search.words.bm25 import Bm25Index

COLLECTIONS = ("scifact", "cranfield", "acl_title2abs", "oewn_examples")
MEASURE = "nDCG@10"
ROUNDS, TIMED = 5, 500
"""Rounds in which the forms take turns, and queries of a round."""

Form = Callable[[list[str], int], object]
"""Function that finds the best k documents of each query."""


def measured(folder: Path) -> dict[str, object]:
    """Rank the test queries of a BEIR folder by BM25."""
    rows = collection.rows(folder / "corpus.jsonl")
    ids, texts = [row["_id"] for row in rows], [f"{row.get('title', '')} {row['text']}" for row in rows]
    grades = dict[str, dict[str, int]]()
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        grades.setdefault(query, {})[document] = int(grade)
    asked = {row["_id"]: row["text"] for row in collection.rows(folder / "queries.jsonl")}
    names = [name for name in grades if name in asked]
    began = time.perf_counter()
    count = sum(len(words(text)) for text in texts)
    split = time.perf_counter() - began
    asked_Q = [asked[name] for name in names]
    judge = Judge(Queries(names, np.zeros((len(names), 1), np.float32), grades, asked_Q), [MEASURE])

    def value(index: Bm25Index) -> str:
        score_QK, row_QK = index.best(asked_Q, 10)
        run = {
            name: {ids[row]: float(score) for row, score in zip(rows_K, scores_K, strict=True) if row >= 0}
            for name, rows_K, scores_K in zip(names, row_QK.tolist(), score_QK.tolist(), strict=True)
        }
        return f"{judge.mean_of(run)[MEASURE]:.4f}"

    index = Bm25Index(texts, language_of(texts))
    told = {"queries": len(names), MEASURE: value(index), f"{MEASURE} of plain words": value(Bm25Index(texts, "none"))}
    with patch.multiple(postings, K1=0.9, B=0.4):  # of Anserini and Pyserini
        told[f"{MEASURE} with k1 and b of Anserini"] = value(Bm25Index(texts, language_of(texts)))
    return told | {"words": f"{count:,}", "seconds": f"{split:.2f}"} | microseconds(texts, asked_Q[:TIMED], index)


def microseconds(texts: Sequence[str], queries: Sequence[str], index: Bm25Index) -> dict[str, str]:
    """Time each form: the median over queries of a query's best round, for 10 and for 100 results."""
    theirs = bm25s.BM25()
    theirs.index([words(text, index.language) for text in texts], show_progress=False)
    with patch.object(postings, "extension", return_value=None):
        in_numpy = Bm25Index(texts, index.language)
    forms: dict[str, Form] = {
        "native": index.best,
        "numpy": in_numpy.best,
        "bm25s": lambda asked, k: theirs.retrieve(
            [words(text, index.language) for text in asked], k=k, show_progress=False
        ),
    }
    timed = {(name, k): partial(_timed, best, k) for k in (10, 100) for name, best in forms.items()}
    rounds = [{key: [one(query) for query in queries] for key, one in timed.items()} for _ in range(ROUNDS)]
    best = {key: np.min([one[key] for one in rounds], axis=0).tolist() for key in timed}
    return {f"{name}@{k}": f"{1e6 * statistics.median(best[name, k]):.0f}" for name, k in best}


def _timed(best: Form, k: int, query: str) -> float:
    began = time.perf_counter()
    best([query], k)
    return time.perf_counter() - began


def main() -> None:
    """Print a line for each collection."""
    Options("Measure BM25 alone on four English collections.").parse_args()
    for name in COLLECTIONS:
        told = measured(collection.folder(name))
        print(f"{name:15} " + "  ".join(f"{key} {value}" for key, value in told.items()), flush=True)


if __name__ == "__main__":
    main()

"""BM25 alone on four English collections: nDCG@10, words and seconds of each.

It shows what another way to split texts into words changes.
"""

import time
from pathlib import Path

import numpy as np

from benchmarks import collection
from benchmarks.commands import Options
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.words import words
from rayhier.search.words.bm25 import Bm25Index

COLLECTIONS = ("scifact", "cranfield", "acl_title2abs", "oewn_examples")
MEASURE = "nDCG@10"


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
    score_QK, row_QK = Bm25Index(texts, None).best([asked[name] for name in names], 10)
    run = {
        name: {ids[row]: float(score) for row, score in zip(rows_K, scores_K, strict=True) if row >= 0}
        for name, rows_K, scores_K in zip(names, row_QK.tolist(), score_QK.tolist(), strict=True)
    }
    queries = Queries(names, np.zeros((len(names), 1), np.float32), grades, [asked[name] for name in names])
    value = Judge(queries, [MEASURE]).mean_of(run)[MEASURE]
    return {"queries": len(names), MEASURE: f"{value:.4f}", "words": f"{count:,}", "seconds": f"{split:.2f}"}


def main() -> None:
    """Print a line for each collection."""
    Options("BM25 alone on four English collections.").parse_args()
    for name in COLLECTIONS:
        told = measured(collection.folder(name))
        print(f"{name:15} " + "  ".join(f"{key} {value}" for key, value in told.items()), flush=True)


if __name__ == "__main__":
    main()

"""Filtered search beside a filtered exact search: `make bench-filters`."""

import hashlib
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import collection
from benchmarks.commands import Options
from benchmarks.goals import verdict
from benchmarks.machine import THREADS, set_threads
from benchmarks.tables import mean, table
from rayhier.arrays import Bools
from rayhier.dataset.queries import load_queries, relevant
from rayhier.search.exact import exact
from rayhier.search.searcher import Searcher
from rayhier.spec.filter import Bound, Filter
from rayhier.storage import columns, current
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import locate

COLLECTIONS = ("scifact", "acl_title2abs")
SHARES = (100, 50, 10, 1)
"""Documents that match, in percent; at 100 there is no filter."""
RESULTS = (10, 100)
QUERIES = 1_000
"""Most test queries that are asked."""
LEAST = 0.95
"""The goal: recall with a filter as a share of that of an exact search over the documents that match."""
HEAD = ["match", "documents", "k", "leaves", "visited", "of matching", "found", "recall", "queries", "enough", "ms"]


def part(name: str) -> int:
    """Number from 0 to 99 of the document with this id."""
    return int.from_bytes(hashlib.blake2b(name.encode()).digest()[8:12], "big") % 100


def build(name: str, workdir: Path) -> Path:
    """Run the shipped spec over a collection whose documents have parts, up to its index; returns the run's workdir."""
    source, folder, work = collection.folder(name).absolute(), workdir / name / "corpus", workdir / name / "work"
    if not (folder / "corpus.jsonl").exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows = collection.rows(source / "corpus.jsonl")
        for own in ("queries.jsonl", "qrels"):
            (folder / own).symlink_to(source / own)
        lines = (json.dumps(row | {"part": part(row["_id"])}) + "\n" for row in rows)
        (folder / "corpus.jsonl").write_text("".join(lines))
    overrides = [f"workdir={work.absolute()}", f"corpus.path={folder.absolute()}", "corpus.fields={part: int}"]
    collection.run(overrides, stages=(*collection.BUILT, "test"))
    return work


@dataclass(frozen=True)
class Outcome:
    """What a search for k results finds and visits, on average of the queries, where a share of the documents match."""

    share: int
    matching: int
    k: int
    leaves: float
    visited: float
    found: float
    recall: float
    """As a share of an exact search's; NaN where no judged answer matches."""
    queries: int
    enough: float
    seconds: float

    def cells(self) -> list[str]:
        """A row of the table."""
        return [
            f"{self.share}%",
            f"{self.matching:,}",
            str(self.k),
            f"{self.leaves:,.0f}",
            f"{self.visited:,.0f}",
            f"{self.visited / self.matching:.1%}",
            f"{self.found:.3f}",
            mean([self.recall]),
            str(self.queries),
            f"{self.enough:.0%}",
            f"{1e3 * self.seconds:.2f}",
        ]


class Index:
    """An index with parts: every document once, and encoded test queries with an answer."""

    def __init__(self, name: str, work: Path) -> None:
        root = locate(str(work))
        self.searcher, now = Searcher.open(root), current.read(root)
        index, test = (current.artifact(root, now, kind) for kind in ("index", "test"))
        leaf_map = LeafMap.open(index.root)
        read = [leaf_map.read(shard, ["doc_id", "rank", "vector", "part"]) for shard in leaf_map.manifest.shards]
        rows = pa.concat_tables(read)
        rows = rows.filter(pc.equal(rows["rank"], 0))
        self.ids = np.array(rows["doc_id"].to_pylist(), dtype=object)
        self.vector_NM, self.part_N = columns.matrix(rows["vector"]), rows["part"].to_numpy()
        queries = load_queries(test, test, "test")
        answered = sorted(query for query in queries.ids if relevant(queries.grades[query]))
        queries = queries.some(np.isin(queries.ids, answered[:QUERIES]))
        self.answers = [set(relevant(queries.grades[query])) for query in queries.ids]
        self.encoded = self.searcher.model.encode(queries.texts)
        leaves = f"{len(self.searcher.manifest.counts):,} leaves"
        self.told = f"{name}: {len(self.ids):,} documents, {leaves}, {len(self.answers)} test queries"

    def exact(self, kept_N: Bools, k: int) -> list[set[str]]:
        """Ids of the best k documents among those that are kept, for each query."""
        ids = pa.array(self.ids[kept_N], pa.string())
        ranking = exact(self.encoded.numpy, self.vector_NM[kept_N], ids, ids, k)
        return [set(ranking.ids[rows[rows >= 0]].tolist()) for rows in ranking.row_QK]

    def outcome(self, k: int, share: int) -> Outcome:
        """Search for k results where a share of the documents match."""
        where: Filter | None = None if share == 100 else Bound("part", "lt", share)
        kept_N = self.part_N < share
        request = self.searcher.rules.request(self.encoded.numpy, k, filter=where)
        self.searcher.answer(request, self.encoded)  # maps what it reads
        began = time.perf_counter()
        given = self.searcher.answer(request, self.encoded)
        seconds = time.perf_counter() - began
        names, best, matching = [{hit.id for hit in one.hits} for one in given], self.exact(kept_N, k), self.ids[kept_N]
        answers = [own & set(matching) for own in self.answers]
        ours, theirs = recall(names, answers), recall(best, answers)
        return Outcome(
            share,
            len(matching),
            k,
            leaves=float(np.mean([len(one.leaves) for one in given])),
            visited=float(np.mean([one.documents for one in given])),
            found=float(np.mean([len(own & right) / len(right) for own, right in zip(names, best, strict=True)])),
            recall=ours / theirs if theirs else math.nan,
            queries=sum(len(own) > 0 for own in answers),
            enough=float(np.mean([one.enough for one in given])),
            seconds=seconds / len(given),
        )


def measured(name: str, workdir: Path) -> tuple[str, list[Outcome]]:
    """A heading, and the outcomes of every number of results and share; builds what is missing."""
    index = Index(name, build(name, workdir))
    return index.told, [index.outcome(k, share) for k in RESULTS for share in SHARES]


def goals(outcomes: Sequence[Outcome]) -> dict[str, bool]:
    """A line for each filter, and whether its goal is met, with every number of results."""
    told = dict[str, bool]()
    for share in sorted({one.share for one in outcomes} - {100}, reverse=True):
        own = [one for one in outcomes if one.share == share]
        met = all(one.recall >= LEAST for one in own)
        each = "; ".join(f"R@{one.k} {mean([one.recall])}, {one.visited:,.0f} documents visited" for one in own)
        said = f"{verdict(met):<6} {share}% match, recall over that of exact search"
        told[f"{said}: {each} (asked {LEAST:g})"] = met
    return told


def recall(found: Sequence[set[str]], answers: Sequence[set[str]]) -> float:
    """Mean share of the answers that is found, over queries that have one; 0 where none has."""
    shares = [len(own & right) / len(right) for own, right in zip(found, answers, strict=True) if right]
    return float(np.mean(shares)) if shares else 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is missing, and print a table and its goals for each collection; 1 where one is missed."""
    parser = Options("Filtered search beside a filtered exact search.", "filters")
    parser.add_argument("collections", nargs="*", default=COLLECTIONS, help=f"default: {' '.join(COLLECTIONS)}")
    given = parser.parse_args(arguments)
    set_threads(THREADS)
    met: list[bool] = []
    for name in given.collections:
        told, outcomes = measured(name, given.workdir)
        said = goals(outcomes)
        print("\n".join(["", told, "", *table(HEAD, [one.cells() for one in outcomes]), "", *said]), flush=True)
        met += said.values()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Measure microseconds of a search as users call it: by vectors, by BM25 and by both, with and without a filter.

    make bench NAME=modes ARGS=WORKDIR

The filter keeps 1%. It needs a declared field. So a copy of the index, with its leaves, gets a field with a random
number of 0 to 99. Results of the copy have the field's value. So a search of the copy without a filter is the baseline.

`found` is the share of an exact search's ten results, with the same mode and filter. The least beam that finds 95%
without a filter is chosen on dev. With `auto`, rayhier chooses the beam. Times are of single test queries, on one
thread, without encoding. Results have ids, titles and texts. The last two lines give the time of the encoder, and of a
search by BM25.
"""

import os
import tempfile
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.commands import Options, absolute
from benchmarks.machine import interleaved, set_threads, timed
from benchmarks.search import RECALL
from benchmarks.search_systems import ladder
from benchmarks.tables import UNKNOWN, table
from rayhier.arrays import Values
from rayhier.dataset.queries import load_split
from rayhier.index.shards import write_rows
from rayhier.model.encoded import Encoded
from rayhier.search.snapshot import Snapshot
from rayhier.storage import current
from rayhier.storage.leaf_map import LeafMap, publish
from rayhier.storage.paths import locate

K, ROUNDS, QUERIES, CHOOSING = 10, 15, 200, 500
"""QUERIES: test queries that are timed. CHOOSING: dev queries that choose a beam."""
FIELD = "number"
FILTERS: dict[str, Mapping[str, Any] | None] = {"no fields": None, "keeps all": None, "keeps 1%": {FIELD: 0}}
"""What a search filters. Only the first searches the index itself, whose documents have no field."""


@dataclass(frozen=True)
class Asked:
    """Queries as texts, and encoded."""

    texts: list[str]
    encoded: Encoded

    @property
    def apart(self) -> list["Asked"]:
        """Each query alone."""
        vectors = [Encoded(vector_1M) for vector_1M in self.encoded.numpy[:, None]]
        return [Asked([text], vector) for text, vector in zip(self.texts, vectors, strict=True)]


@dataclass(frozen=True)
class Indexes:
    """An index, its copy with a field, and the copy's exact search."""

    plain: Snapshot
    copy: Snapshot
    exact: Snapshot


@dataclass(frozen=True)
class Way:
    """A way to search: a mode, the name of a filter, and the leaves to visit, by default as many as rayhier chooses."""

    mode: str
    filter: str
    beam: int | None = None

    def search(self, index: Snapshot, asked: Asked) -> list[list[str]]:
        """Search, and return ids of results."""
        queries = asked.encoded.numpy if self.mode == "dense" else asked.texts
        request = index.rules.request(queries, K, self.beam, FILTERS[self.filter], self.mode)
        return [[hit.id for hit in answer.hits] for answer in index.answer(request, asked.encoded)]

    def exact(self, indexes: Indexes, asked: Asked) -> list[list[str]]:
        """Search exactly with the same mode and filter."""
        leaves = None if self.mode == "bm25" else indexes.exact.rules.leaves
        return replace(self, beam=leaves).search(indexes.exact, asked)

    def found(self, indexes: Indexes, asked: Asked, exact: list[list[str]]) -> float:
        """Compute the share of an exact search's results that a search of the copy has."""
        pairs = list(zip(self.search(indexes.copy, asked), exact, strict=True))
        return sum(len({*hits} & {*true}) for hits, true in pairs) / sum(len(true) for _, true in pairs)

    def alone(self, indexes: Indexes, queries: list[Asked]) -> None:
        """Search for one query after the other."""
        index = indexes.plain if self.filter == "no fields" else indexes.copy
        for query in queries:
            self.search(index, query)


def least(mode: str, indexes: Indexes, asked: Asked) -> Way:
    """Choose the least beam that finds 95% without a filter."""
    ways = [Way(mode, "keeps all", beam) for beam in ladder(indexes.copy.rules.leaves)]
    exact = ways[0].exact(indexes, asked)
    return ways[bisect_left(range(len(ways) - 1), RECALL, key=lambda at: ways[at].found(indexes, asked, exact))]


@contextmanager
def opened(workdir: Path) -> Iterator[Indexes]:
    """Open an index, and write and open its copy, whose documents have a random number as a field."""
    plain = Snapshot.open(str(workdir))
    corpus = plain.spec.corpus.model_copy(update={"fields": {FIELD: "int"}})
    spec = plain.spec.model_copy(update={"corpus": corpus})
    search = spec.search.model_copy(update={"shortlist": plain.manifest.rows})
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RAYHIER_CACHE"] = f"{folder}/cache"
        root, shards = Path(folder) / "index", []
        for number, shard in enumerate(plain.manifest.shards):
            rows = plain.leaf_map.read(shard)
            numbers = [zlib.crc32(id_.encode()) % 100 for id_ in rows["doc_id"].to_pylist()]
            rows = rows.append_column(FIELD, pa.array(numbers, pa.int64()))
            shards.append(write_rows(root, f"data/shard-{number:05d}.parquet", rows, words=plain.manifest.words))
        publish(root, plain.manifest.model_copy(update={"shards": shards}))
        copy = Snapshot(spec, LeafMap.open(root), plain.model)
        exact = Snapshot(spec.model_copy(update={"search": search}), LeafMap.open(root), plain.model)
        for index in (plain, copy):
            index.open_files()
        yield Indexes(plain, copy, exact)


def asked_of(workdir: Path, index: Snapshot, split: str, count: int) -> Asked:
    """Read the first judged queries of a split."""
    place = locate(str(workdir))
    now = current.read(place)
    judged = load_split(split, *(current.artifact(place, now, kind) for kind in ("corpus", "vectors", "test")))
    texts = list(judged.texts[:count])
    return Asked(texts, index.model.encode_stored(judged.vector_QM[:count], lambda: texts, "query"))


def main() -> None:
    """Print the table."""
    parser = Options("Measure microseconds of a search, by mode, with and without a filter.")
    parser.add_argument("workdir", type=absolute, help="workdir of an index with counted words and test queries")
    workdir = parser.parse_args().workdir
    set_threads(1)
    with opened(workdir) as indexes:
        index = indexes.plain
        dev, test = asked_of(workdir, index, "dev", CHOOSING), asked_of(workdir, index, "test", QUERIES)
        queries, ways = test.apart, list[Way]()
        for mode in index.rules.modes:
            beams = [None] if mode == "bm25" else [least(mode, indexes, dev).beam, None]
            ways += [Way(mode, name, beam) for beam in beams for name in FILTERS]
        found = [way.found(indexes, test, way.exact(indexes, test)) for way in ways]
        works = {str(number): partial(way.alone, indexes, queries) for number, way in enumerate(ways)}
        taken_W = [1e6 * second_R / len(queries) for second_R in interleaved(works, ROUNDS).values()]
        encoding = [1e3 * timed(partial(index.model.encode, query.texts)) for query in queries]
        plain = [1e3 * timed(partial(index.search, query.texts, K, mode="bm25")) for query in queries]
        documents = len(index)
    baselines, lines = dict[tuple[str, bool], Values](), []
    for way, share, taken_R in zip(ways, found, taken_W, strict=True):
        if way.filter == "keeps all":
            baselines[way.mode, way.beam is None] = taken_R
        baseline_R, beam = baselines.get((way.mode, way.beam is None)), UNKNOWN if way.mode == "bm25" else "auto"
        ratio = UNKNOWN if baseline_R is None else f"{np.median(taken_R / baseline_R):.2f}"
        lines.append([way.mode, way.filter, str(way.beam or beam), f"{share:.3f}", f"{np.median(taken_R):,.0f}", ratio])
    print(f"\n{documents:,} documents, {len(queries)} queries, {ROUNDS} rounds that take turns, one thread\n")
    heads = ["mode", "filter", "beam", f"found of {K}", "microseconds a query", "ratio to keeps all"]
    print("\n".join(table(heads, lines)))
    print(f"\nThe encoder takes {np.median(encoding):.1f} ms for a text.")
    print(f"BM25 takes {np.median(plain):.1f} ms for a text that is not encoded before.")


if __name__ == "__main__":
    main()

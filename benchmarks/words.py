"""BM25 by an index's postings beside bm25s and tantivy, and what it adds to a search: `make bench-words`.

Documents are those of an index, and with `--times` moved copies of them, in which every fourth word is another
document's. Dev queries are asked one at a time, on one thread. With `--words-only` whole searches are left out, and the
documents' vectors too.
"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import leaf_maps
from benchmarks.collection import BUILT, RUNS, place, run
from benchmarks.commands import Options, absolute, apart, clock
from benchmarks.harder import harder
from benchmarks.machine import set_threads, timed
from benchmarks.tables import table
from rayhier.arrays import Floats, Values
from rayhier.dataset.documents import document_texts
from rayhier.dataset.queries import load_queries
from rayhier.dataset.words import words
from rayhier.embed.encode import TextEncoder
from rayhier.index.shards import write_shard
from rayhier.model.encoded import Encoded
from rayhier.search.hybrid import WordScan
from rayhier.search.index import open_leaf_map
from rayhier.search.model import Model
from rayhier.search.scan import LeafScan
from rayhier.search.searcher import Searcher
from rayhier.storage import columns, current, leaf_map, schemas
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.storage.paths import locate

K, ASKED, WARM = 100, 1_000, 100
SHARDS = 4
LEAVES, M = 64, 8
"""Leaves of an index of words alone, and numbers of its vectors, which nobody reads."""
MOST_IN_MEMORY = 3_000_000
"""Most documents that bm25s counts: of ten million it would fill this memory."""
OTHERS = 4
"""Of so many words of a copy, one is another document's."""


@dataclass(frozen=True)
class World:
    """Texts of documents with their vectors [n, m] in a file, and queries with theirs [q, m]."""

    texts: list[str]
    vectors: Path
    queries: list[str]
    query_QM: Floats

    @classmethod
    def of(cls, index: Path, times: int, folder: Path, *, words_only: bool) -> "World":
        """Read an index's documents and dev queries, and make moved copies of the documents."""
        root = locate(str(index))
        now = current.read(root)
        there, model = open_leaf_map(root, now), Model.of_workdir(root, now)
        read = (there.read(shard, ["rank", "title", "text", "vector"]) for shard in there.manifest.shards)
        first = pa.concat_tables(rows.filter(pc.equal(rows["rank"], 0)) for rows in read)
        texts, rng = document_texts(first), np.random.default_rng(0)
        split = [text.split() for text in texts]
        pool = np.array([word for text in split[:: max(1, len(split) // 20_000)] for word in text])
        copies = (_moved(text, pool, rng) for _ in range(1, times) for text in split)
        vectors = folder / "vectors.npy"
        if not vectors.exists() and not words_only:
            harder(columns.matrix(first["vector"]), times, vectors)
        corpus, base = (current.artifact(root, now, kind) for kind in ("corpus", "vectors"))
        dev = load_queries(corpus, base, "dev")
        queries = dev.some(np.arange(len(dev)) < ASKED)
        encoded = model.encode_stored(queries.vector_QM, lambda: queries.texts).numpy
        return cls([*texts, *copies], vectors, list(queries.texts), encoded)


def _moved(text: Sequence[str], pool: Any, rng: np.random.Generator) -> str:
    others = rng.choice(pool, len(text))
    return " ".join(np.where(rng.random(len(text)) < 1 / OTHERS, others, text).tolist()) if len(text) else ""


def resident() -> int:
    """Bytes of this process's memory that are its own, without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def size(folder: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class Told:
    """What a system took, and the scores of the documents that it found for each query."""

    name: str
    built: float
    disk: int
    opened: float
    memory: int
    seconds_Q: Values
    scores: list[Values]

    def cells(self, control: "Told") -> list[str]:
        """Cells of the table; scores are compared with a control's."""
        ms_Q, worst = 1e3 * self.seconds_Q, 0.0
        for score_K, other_K in zip(self.scores, control.scores, strict=True):
            count = min(len(score_K), len(other_K))
            worst = max(worst, 1.0 if len(score_K) != len(other_K) else 0.0)
            worst = max(worst, float(np.abs(score_K[:count] / other_K[:count] - 1).max(initial=0)))
        figures = f"{np.median(ms_Q):.2f}", f"{ms_Q.mean():.2f}", f"{np.percentile(ms_Q, 95):.2f}"
        files = "" if not self.disk else f"{self.disk / 1e6:,.0f}"
        return [
            self.name,
            f"{self.built:,.1f}",
            files,
            f"{1e3 * self.opened:,.1f}",
            f"{self.memory / 1e6:,.0f}",
            *figures,
            f"{worst:.0e}",
        ]


def timed_each(queries: Sequence[str], find: Callable[[str], Any]) -> tuple[Values, list[Any]]:
    """Seconds [q] of each query, and what it found."""
    for query in queries[:WARM]:
        find(query)
    seconds, results = [], []
    for query in queries:
        began = time.perf_counter()
        results.append(find(query))
        seconds.append(time.perf_counter() - began)
    return np.array(seconds), results


def ours(folder: Path, built: float, queries: Sequence[str]) -> Told:
    """The postings of a leaf map, as an index has them."""
    set_threads(1)
    there = LeafMap.open(folder)
    opening = partial(lambda: WordScan.mapped(there, LeafScan.mapped(there)).words)
    opening()  # makes the mapped files, once on a machine
    before, began = resident(), time.perf_counter()
    lists = opening()
    opened = time.perf_counter() - began
    seconds_Q, results = timed_each(queries, lambda query: lists.best([query], K)[0][0, :K])
    scores = [score_K[np.isfinite(score_K)].astype(np.float64) for score_K in results]
    return Told("postings", built, size(folder / "words"), opened, resident() - before, seconds_Q, scores)


def by_bm25s(texts: Sequence[str], queries: Sequence[str]) -> Told:
    """bm25s, in memory."""
    before, began = resident(), time.perf_counter()
    index = bm25s.BM25()
    index.index([words(text) or [""] for text in texts], show_progress=False)
    built, k = time.perf_counter() - began, min(K, len(texts))

    def find(query: str) -> Values:
        tokens = words(query)
        if not tokens:
            return np.zeros(0)
        _, score_K = index.retrieve([tokens], k=k, show_progress=False)
        return np.asarray(score_K[0][score_K[0] > 0])

    seconds_Q, scores = timed_each(queries, find)
    return Told("bm25s", built, 0, built, resident() - before, seconds_Q, scores)


def by_tantivy(texts: Sequence[str], queries: Sequence[str], folder: Path) -> Told:
    """tantivy, mapped, by its own formula: k1 1.2, and lengths in one byte."""
    import tantivy

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    schema = tantivy.SchemaBuilder().add_text_field("text", tokenizer_name="blanks", index_option="freq").build()
    blanks = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    began = time.perf_counter()
    index = tantivy.Index(schema, path=str(folder))
    index.register_tokenizer("blanks", blanks)
    writer = index.writer(heap_size=256_000_000, num_threads=1)
    for text in texts:
        writer.add_document(tantivy.Document(text=" ".join(words(text))))
    writer.commit()
    writer.wait_merging_threads()
    built, before = time.perf_counter() - began, resident()
    began = time.perf_counter()
    index = tantivy.Index.open(str(folder))
    searcher = index.searcher()
    opened = time.perf_counter() - began

    def find(query: str) -> Values:
        terms = [tantivy.Query.term_query(schema, "text", word, "freq") for word in words(query)]
        asked_for = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        return np.array([score for score, _ in searcher.search(asked_for, K, count=False).hits])

    seconds_Q, scores = timed_each(queries, find)
    return Told("tantivy, its own formula", built, size(folder), opened, resident() - before, seconds_Q, scores)


def searches(folder: Path, world: World) -> list[list[str]]:
    """Rows: milliseconds of a whole search by vectors, by BM25 and by both, and of opening the index."""
    set_threads(1)
    there, spec = LeafMap.open(folder / "map"), leaf_maps.job("words", folder)
    router, rows = load(folder), []
    bare = LeafMap(
        there.root,
        there.manifest.model_copy(
            update={"shards": [shard.model_copy(update={"postings": None}) for shard in there.manifest.shards]}
        ),
    )

    def opened(index: LeafMap) -> Searcher:
        searcher = Searcher.over(Model(router, _no_encoder, spec), index, {})
        searcher.reader.open_files()
        return searcher

    searcher = opened(there)
    opened(bare)
    opening = [float(np.median([timed(partial(opened, index)) for _ in range(9)])) for index in (bare, there)]
    encoded = [Encoded.of(world.query_QM[row : row + 1]) for row in range(len(world.queries))]
    plain = np.zeros(len(encoded))
    for mode in ("dense", "bm25", "hybrid"):

        def find(row: int, mode: str = mode) -> object:
            request = searcher.rules.request([world.queries[row]], 10, mode=mode)
            return searcher.retrieve(request, encoded[row])

        seconds = [[timed(partial(find, row)) for row in range(len(encoded))] for _ in range(3)]
        ms_Q = 1e3 * np.median(seconds, axis=0)
        plain = ms_Q if mode == "dense" else plain
        more = "" if mode == "dense" else f"{float(np.mean(ms_Q - plain)):+.2f}"
        rows.append([mode, f"{np.median(ms_Q):.2f}", f"{ms_Q.mean():.2f}", f"{np.percentile(ms_Q, 95):.2f}", more])
    rows.append(["open, without words", f"{1e3 * opening[0]:.1f}", "", "", ""])
    rows.append(["open, with words", f"{1e3 * opening[1]:.1f}", "", "", f"{opening[1] / opening[0]:.2f} x"])
    return rows


def _no_encoder() -> TextEncoder:
    raise AssertionError("queries are encoded")


def load(folder: Path) -> Any:
    """The router of a leaf map that was made below a folder."""
    from rayhier.model.router import load_router

    return load_router(folder / "router")


def built_words(folder: Path, world: World) -> float:
    """Write a leaf map for its words where it is missing; returns the seconds of writing, counting words included."""
    began, n = time.perf_counter(), len(world.texts)
    if (folder / "map" / "manifests").exists():
        return float("nan")
    shutil.rmtree(folder / "map", ignore_errors=True)
    leaf_N, shards = np.arange(n) * LEAVES // n, []
    counts = np.bincount(leaf_N, minlength=LEAVES).tolist()
    for first, last in leaf_map.ranges(counts, SHARDS):
        rows = np.flatnonzero((leaf_N >= first) & (leaf_N < last))
        listed = pa.ListArray.from_arrays(np.arange(len(rows) + 1, dtype=np.int32), pa.array(leaf_N[rows], pa.int32()))
        zeros = np.zeros(len(rows), np.float32)
        texts = leaf_maps.texts([f"{row:09d}" for row in rows.tolist()], world.texts[rows[0] : rows[-1] + 1])
        placed = {
            "leaf": pa.array(leaf_N[rows], pa.int32()),
            "rank": pa.array(zeros, pa.int8()),
            "leaves": listed,
            "log_prob": pa.array(zeros),
            "vector": columns.vector_column(np.zeros((len(rows), M), np.float16), pa.float16()),
        }
        schema = schemas.leaf_map(M, "float16")
        table = pa.table({**dict(zip(texts.column_names, texts.columns, strict=True)), **placed})
        shard = table.select(schema.names).cast(schema)
        shards.append(write_shard(folder / "map", f"data/{first}.parquet", [shard], range(first, last), counts))
    made = Manifest(
        version=1,
        parent=None,
        model="none",
        metric="inner_product",
        vectors="float16",
        dimension=M,
        documents=n,
        counts=counts,
        shards=shards,
    )
    leaf_map.publish(folder / "map", made)
    return time.perf_counter() - began


def built(folder: Path, world: World) -> float:
    """Seconds that counting words takes; the leaf map is written where it is missing."""
    from rayhier.dataset.words import postings
    from rayhier.model.router import save_router

    began = time.perf_counter()
    for part in np.array_split(np.arange(len(world.texts)), SHARDS):
        postings([world.texts[row] for row in part.tolist()], np.arange(len(part)))
    seconds = time.perf_counter() - began
    if not (folder / "map" / "manifests").exists():
        shutil.rmtree(folder / "map", ignore_errors=True)
        vector_NM, spec = np.load(world.vectors, mmap_mode="r"), leaf_maps.job("words", folder)
        sample = np.sort(np.random.default_rng(0).permutation(len(vector_NM))[:200_000])
        router = leaf_maps.settled(spec, np.asarray(vector_NM[sample], np.float32), len(vector_NM))
        save_router(router, folder / "router")
        texts = leaf_maps.texts([f"{row:09d}" for row in range(len(vector_NM))], world.texts)
        leaf_maps.write(folder / "map", router, spec, texts, vector_NM, SHARDS)
    return seconds


def main() -> None:
    """Print the tables."""
    parser = Options("BM25 by postings.", "words")
    parser.add_argument("--index", type=absolute, help="workdir of an index; default: oewn_examples by its spec")
    parser.add_argument("--times", type=int, default=1, help="so many times the documents, moved copies added")
    parser.add_argument("--words-only", action="store_true", help="leave out whole searches, and vectors")
    given = parser.parse_args()
    tell, index = clock(), given.index or RUNS / "search-index"
    if given.index is None:
        run(place("oewn_examples", index), stages=BUILT)
    folder = given.workdir / f"{'words' if given.words_only else 'times'}-{given.times}"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("RAYHIER_CACHE", str(folder / "cache"))
    world = World.of(index, given.times, folder, words_only=given.words_only)
    tell(f"{len(world.texts):,} documents, {len(world.queries):,} queries")
    seconds = apart(built_words if given.words_only else built, folder, world)
    tell("a leaf map with words")
    told = [apart(ours, folder / "map", seconds, world.queries)]
    if len(world.texts) <= MOST_IN_MEMORY:
        told.append(apart(by_bm25s, world.texts, world.queries))
    tell("postings, and bm25s where documents are not too many")
    try:
        told.append(apart(by_tantivy, world.texts, world.queries, folder / "tantivy"))
    except ImportError:
        tell("tantivy is left out: it is not installed")
    head = [
        "",
        "built, s",
        "MB of files",
        "opened, ms",
        "MB in memory",
        "ms a query, median",
        "mean",
        "95%",
        "scores differ by",
    ]
    control = next((system for system in told if system.name == "bm25s"), told[0])
    cells = [system.cells(control) for system in told]
    print("\n".join(["", f"{len(world.texts):,} documents", "", *table(head, cells)]))
    if given.words_only:
        return
    rows = apart(searches, folder, world)
    print("\n".join(["", *table(["", "ms a query, median", "mean", "95%", "over vectors, ms"], rows)]))


if __name__ == "__main__":
    main()

"""A file of queries as a job, and a graph of nearest neighbours: `make bench-batch`.

The rate of the job (read, search, write, join) is beside that of `Searcher.retrieve` on the same vectors in memory, in
batches of the same size: rounds take turns, so that what else the machine does falls on both. Queries are vectors, near
documents but none of them: x + .7 (a - b) for the two documents a and b that follow x in the order of the leaves.
The graph is that of `rayhier search --documents`, in a process of its own, beside HNSW by faiss that is built and asked
for every document. Both search with the least effort that finds 95% of the true ten neighbours of a sample.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import leaf_maps
from benchmarks.collection import BUILT, RUNS, place, run
from benchmarks.commands import Options, absolute, apart, clock, count
from benchmarks.harder import MOVED, best, harder
from benchmarks.machine import Stages, set_threads, timed
from benchmarks.search_systems import CONSTRUCTION, LINKS, SAMPLED, SHARDS, added, ladder
from benchmarks.synthetic import unit
from benchmarks.tables import quotient, table
from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.model.router import save_router
from rayhier.progress import say
from rayhier.search.__main__ import main as search
from rayhier.search.batch import Answers, Job, answered, in_this_process
from rayhier.search.index import open_leaf_map
from rayhier.search.query_files import CHUNK, Chunk, IndexDocuments, QueryFile, Refused
from rayhier.search.searcher import Searcher
from rayhier.storage import columns, current, files
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.paths import locate

RECALL, K, SAMPLE, ROUNDS = 0.95, 10, 1_000, 3


def documents(workdir: Path) -> tuple[list[str], Floats]:
    """Ids and vectors [n, m] of an index's documents, in the order of their leaves."""
    root = locate(str(workdir))
    chunks = list(IndexDocuments(open_leaf_map(root, current.read(root))).chunks(Refused()))
    return [name for chunk in chunks for name in chunk.ids], np.concatenate([chunk.parts[0][1] for chunk in chunks])


def near(vector_NM: Floats, wanted: int) -> Floats:
    """As many queries [q, m] near documents, in no order."""
    row_Q = np.random.default_rng(0).choice(len(vector_NM), min(wanted, len(vector_NM)), replace=False)
    a_QM, b_QM = (vector_NM[(row_Q + step) % len(vector_NM)] for step in (1, 2))
    return unit(vector_NM[row_Q] + np.float32(MOVED) * (a_QM - b_QM))


def least(efforts: Sequence[int], found: Callable[[int], float]) -> int:
    """The first effort that finds 95%; the last where none does."""
    return next((effort for effort in efforts if found(effort) >= RECALL), efforts[-1])


def share(found: Sequence[Sequence[str]], true: Sequence[set[str]]) -> float:
    """Share of the true neighbours that were found."""
    return float(np.mean([len(set(names) & wanted) / len(wanted) for names, wanted in zip(found, true, strict=True)]))


def beam_for(workdir: Path, chunk: Chunk, true: Sequence[set[str]]) -> int:
    """The least beam that finds 95% of the true neighbours of a chunk's queries."""
    searcher = Searcher.of_version(locate(str(workdir)), current.read(locate(str(workdir))))

    def found(beam: int) -> float:
        results = answered(searcher.rules, chunk, {"k": K, "beam": beam}, searcher.retrieve)
        return share(results["ids"].to_pylist(), true)

    return least(ladder(searcher.rules.leaves // 2, 8), found)


def rates(workdir: Path, file: Path, beam: int, workers: int, threads: int) -> dict[str, list[float]]:
    """Queries a second in each round, of the scan alone and of the job, and the seconds until the job could begin."""
    set_threads(threads)
    root = locate(str(workdir))
    now, arguments = current.read(root), {"k": K, "beam": beam}
    searcher = Searcher.of_version(root, now)
    query_QM = columns.matrix(pq.read_table(file)["vector"])

    def scan() -> None:
        for begin in range(0, len(query_QM), CHUNK):
            searcher.retrieve(searcher.rules.request(query_QM[begin : begin + CHUNK], K, beam))

    def job(answers: Answers) -> None:
        with TemporaryDirectory() as folder:
            queries = QueryFile(file, searcher.rules)
            Job(queries, searcher.manifest, searcher.rules, Path(folder) / "out.parquet", arguments).run(answers)

    scan()
    with contextlib.ExitStack() as stack:
        answers, began = in_this_process(searcher, arguments), time.monotonic()
        if workers > 1:
            from rayhier.search.ray import Workers

            pool = stack.enter_context(Workers(str(workdir), now, searcher.manifest, workers, "local"))
            answers = pool.answers(arguments)
            some = Chunk([str(row) for row in range(CHUNK)], [(np.arange(CHUNK), query_QM[:CHUNK])])
            list(answers(enumerate([some] * 2 * workers)))
        started = time.monotonic() - began
        turns = [(timed(scan), timed(partial(job, answers))) for _ in range(ROUNDS)]
    both = {name: [len(query_QM) / turn[at] for turn in turns] for at, name in enumerate(("scan", "job"))}
    return {**both, "start": [started]}


def killed(workdir: Path, file: Path, beam: int, folder: Path) -> str:
    """A line on the command of the same search: killed once half of it is done, and given again."""
    out, wanted = folder / "killed.parquet", pq.ParquetFile(file).metadata.num_rows
    shutil.rmtree(parts := out.with_name(f"{out.name}.parts"), ignore_errors=True)
    out.unlink(missing_ok=True)
    options = [str(workdir), "--queries", str(file), "--out", str(out), "-k", str(K), "--beam", str(beam)]
    command, seconds = [sys.executable, "-m", "rayhier", "search", *options], []
    for stops in (True, False):
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=sys.stderr)
        while process.poll() is None and not (stops and len(list(parts.glob("[0-9]*.parquet"))) * CHUNK > wanted / 2):
            time.sleep(0.05)
        if stops and process.poll() is not None:
            sys.exit("the search ended before it could be killed; ask more --queries")
        if stops:
            process.kill()
        if process.wait() and not stops:
            sys.exit("the search failed")
        if stops:
            kept = len(list(parts.glob("[0-9]*.parquet"))) * CHUNK
        seconds.append(time.monotonic() - began)
    names = pq.read_table(out, columns=["query_id"])["query_id"].to_pylist()
    ids = pq.read_table(file, columns=["id"])["id"].to_pylist()
    each = "each once, in the file's order" if names == ids else f"for {len(set(names) & set(ids)):,} of the queries"
    return (
        f"Killed by SIGKILL after {seconds[0]:.0f} s with {kept:,} of {wanted:,} queries done, and given again: "
        f"{seconds[1]:.0f} s more; {len(names):,} answers, {each}."
    )


def graph(workdir: Path, out: Path, beam: int, workers: int) -> dict[str, float]:
    """Seconds and memory of the command that writes all documents' neighbours."""
    options = [str(workdir), "--documents", "--out", str(out), "-k", str(K), "--beam", str(beam)]
    if workers > 1:
        options += ["--workers", str(workers), "--address", "local"]
    with TemporaryDirectory() as folder:
        stages = Stages(Path(folder))
        with stages.of("graph"), contextlib.redirect_stdout(sys.stderr):
            if search(options):
                sys.exit("the search failed")
        own = time.process_time()
        say(f"  {own:.0f} CPU seconds in the command's own process")
        return {**stages.took["graph"], "cpu": own}


def graph_by_hnsw(vectors: Path, sample_A: Ints, true: Sequence[set[str]]) -> dict[str, float]:
    """The same by HNSW, with two threads: seconds of both parts, the effort, the share found."""
    vector_NM = np.load(vectors, mmap_mode="r")
    set_threads(2)
    index: Any = faiss.IndexHNSWFlat(vector_NM.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = CONSTRUCTION
    began = time.process_time()
    with TemporaryDirectory() as folder:
        stages = Stages(Path(folder))
        with stages.of("build"):
            added(index, vector_NM)

        def asked(rows: Any, effort: int) -> Ints:
            index.hnsw.efSearch = effort
            return np.asarray(index.search(np.asarray(vector_NM[rows], np.float32), K + 1)[1])

        def found(effort: int) -> float:
            rows = zip(sample_A.tolist(), asked(sample_A, effort).tolist(), strict=True)
            return share([[str(row) for row in near if row != own][:K] for own, near in rows], true)

        sought = [time.process_time()]
        effort = least(ladder(2_000, K + 1), found)
        sought.append(time.process_time())
        with stages.of("search"):
            for begin in range(0, len(vector_NM), 1 << 14):
                asked(slice(begin, begin + (1 << 14)), effort)
        took = stages.took
    cpu = time.process_time() - began - (sought[1] - sought[0])
    seconds = {f"{name} seconds": stage["seconds"] for name, stage in took.items()}
    total = max(stage["total"] for stage in took.values())
    return {**seconds, "cpu": cpu, "total": total, "effort": effort, "share": found(effort)}


def larger(index: Path, times: int, folder: Path) -> Path:
    """A workdir of so many times an index's documents, with leaves by k-means that nothing taught."""
    made = folder / f"times-{times}"
    if (made / "current.json").exists():
        return made
    now, names = current.read(locate(str(index))), {"model": "0" * 12, "index": "1" * 12}
    vector_NM = harder(documents(index)[1], times, folder / f"vectors-{times}.npy")
    lists = 1 << round(float(np.log2(4 * len(vector_NM) ** 0.5)))
    routing = {**now.spec.router.model_dump(), "branching": lists, "rank": 0}
    search_spec = {**now.spec.search.model_dump(), "how": "leaves"}
    values = {**now.spec.model_dump(mode="json"), "router": routing, "search": search_spec, "workdir": str(made)}
    spec = type(now.spec).model_validate({**values, "index": {**values["index"], "leaves_per_document": 1}})
    sample = np.sort(np.random.default_rng(0).permutation(len(vector_NM))[: SAMPLED * lists])
    router = leaf_maps.settled(spec, np.asarray(vector_NM[sample], np.float32), len(vector_NM))
    shutil.rmtree(made, ignore_errors=True)
    encoder = current.artifact(locate(str(index)), now, "model").local("encoder")
    with Attempt.start(Place(made / "model" / names["model"])) as attempt:
        with files.filling(attempt.root) as root:
            save_router(router, root / "router")
            shutil.copytree(encoder, root / "encoder")
        attempt.publish("model", {}, Output({}))
    with Attempt.start(Place(made / "index" / names["index"])) as attempt:
        texts = leaf_maps.texts([f"{row:09d}" for row in range(len(vector_NM))])
        vectors = np.asarray(vector_NM, np.float32)
        with files.filling(attempt.root) as root:
            leaf_maps.write(root, router, spec, texts, vectors, SHARDS, names["model"])
        attempt.publish("index", {"model": names["model"]}, Output({}))
    current.write(made, current.Current(spec=spec, artifacts=names))
    return made


def main() -> None:
    """Print the tables."""
    parser = Options("A file of queries as a job, and a graph of neighbours.", "batch")
    parser.add_argument(
        "--index", type=absolute, help="workdir of an index; default: oewn_examples by the shipped spec"
    )
    parser.add_argument("--queries", type=count, default=100_000, help="queries of the job (default 100,000)")
    parser.add_argument("--times", type=int, default=1, help="so many times the documents, harder copies added")
    parser.add_argument("--only", default="", help="job or graph: one of the two tables")
    given = parser.parse_args()
    tell, folder = clock(), given.workdir
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("RAYHIER_CACHE", str(folder / "cache"))
    index = given.index or RUNS / "search-index"
    if given.index is None:
        run(place("oewn_examples", index), stages=BUILT)
    if given.times > 1:
        index = apart(larger, index, given.times, folder)
    names, vector_NM = documents(index)
    tell(f"{len(names):,} documents")
    if given.only != "graph":
        print("\n".join(jobs(index, names, vector_NM, given.queries, folder, tell)))
    if given.only != "job":
        print("\n".join(graphs(index, names, vector_NM, folder, tell)))


def jobs(
    index: Path, names: list[str], vector_NM: Floats, queries: int, folder: Path, tell: Callable[[str], None]
) -> list[str]:
    """The table of rates."""
    query_QM, file = near(vector_NM, queries), folder / "queries.parquet"
    column = columns.vector_column(query_QM, pa.float32())
    pq.write_table(pa.table({"id": [f"q{row}" for row in range(len(query_QM))], "vector": column}), file)
    true = [{names[row] for row in rows} for rows in best(query_QM[:SAMPLE], vector_NM, K).tolist()]
    asked = Chunk([str(row) for row in range(len(true))], [(np.arange(len(true)), query_QM[:SAMPLE])])
    beam = apart(beam_for, index, asked, true)
    tell(f"{len(query_QM):,} queries, beam {beam}")
    lines = []
    for workers, threads, who in (
        (1, 1, "this process, 1 thread"),
        (1, 2, "this process, 2 threads"),
        (2, 2, "2 workers"),
    ):
        rate = apart(rates, index, file, beam, workers, threads)
        ratio = [job / scan for job, scan in zip(rate["job"], rate["scan"], strict=True)]
        medians = [f"{np.median(rate[name]):,.0f}" for name in ("scan", "job")]
        lines.append([who, *medians, quotient(ratio), f"{rate['start'][0]:.0f}"])
        tell(", ".join(lines[-1]))
    head = ["job by", "scan alone, queries/s", "job, queries/s", "job / scan", "started in, s"]
    once = killed(index, file, beam, folder)
    title = f"\n{len(names):,} documents, {len(query_QM):,} queries, k {K}, beam {beam}\n"
    return [title, *table(head, lines), "", once]


def graphs(index: Path, names: list[str], vector_NM: Floats, folder: Path, tell: Callable[[str], None]) -> list[str]:
    """The table of neighbour graphs."""
    np.save(folder / "vectors.npy", vector_NM)
    sample_A = np.sort(np.random.default_rng(1).choice(len(names), min(SAMPLE, len(names)), replace=False))
    near_AK = best(vector_NM[sample_A], vector_NM, K + 1).tolist()
    rows = [[row for row in near if row != own][:K] for own, near in zip(sample_A.tolist(), near_AK, strict=True)]
    true, by_row = [{names[row] for row in near} for near in rows], [{str(row) for row in near} for near in rows]
    own = [names[row] for row in sample_A.tolist()]
    beam = apart(beam_for, index, Chunk(own, [(np.arange(len(own)), vector_NM[sample_A])], own), true)
    tell(f"beam {beam} for neighbours")
    lines = []
    for workers in (1, 2):
        out = folder / "graph.parquet"
        out.unlink(missing_ok=True)
        took = apart(graph, index, out, beam, workers)
        found = dict(zip(*(pq.read_table(out)[name].to_pylist() for name in ("query_id", "ids")), strict=True))
        reached = share([found[name] for name in own], true)
        who = "this process" if workers == 1 else f"{workers} workers"
        memory = [f"{took['cpu']:.0f}", *(f"{took[name] / 1e9:.2f}" for name in ("process", "total"))]
        lines.append([f"rayhier --documents, {who}", f"{beam}", f"{took['seconds']:.0f}", *memory, f"{reached:.3f}"])
        tell(", ".join(lines[-1]))
    took = apart(graph_by_hnsw, folder / "vectors.npy", sample_A, by_row)
    seconds = f"{took['build seconds']:.0f} + {took['search seconds']:.0f}"
    memory = [f"{took['cpu']:.0f}", *[f"{took['total'] / 1e9:.2f}"] * 2]
    lines.append(["faiss HNSW, 2 threads", f"{took['effort']:.0f}", seconds, *memory, f"{took['share']:.3f}"])
    head = [
        "neighbours by",
        "effort",
        "seconds",
        "CPU seconds, own process",
        "GB, largest process",
        "GB, all",
        f"of the true {K}",
    ]
    return [f"\n{len(names):,} documents, k {K}\n", *table(head, lines)]


if __name__ == "__main__":
    main()

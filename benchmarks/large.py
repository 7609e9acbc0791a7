"""Compare searches of many vectors in little memory.

Each system searches in a separate process. The process's memory without mapped files is measured repeatedly, and
limited by `--memory-gb`. Efforts are chosen on dev queries as in benchmarks/search.py. Recall and times are of test
queries, on one thread. Warm: every query ran once before. Cold: the files were dropped from memory, and the queries are
the first of a new process.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.collection import RUNS, place, run
from benchmarks.commands import Options, absolute, apart, clock
from benchmarks.machine import THREADS, set_threads, timed, watching
from benchmarks.search import ALONE, STAGES, least, one_by_one, vectors
from benchmarks.search_systems import K, Ours, System, diskann, faiss_on_disk, lance
from benchmarks.tables import UNKNOWN, table
from benchmarks.vectors import Asked, harder
from rayhier.progress import say

SYSTEMS = ("rayhier, leaves", "faiss IVF on disk, float16", "LanceDB IVF_PQ", "DiskANN")
TOGETHER = 1_000
ASKED = 1_000
"""Queries of dev, and of test."""
COLD = 100
TOO_LITTLE = "out of memory"
EVERY = 0.05
"""Seconds between two looks at a process's memory."""


def main() -> None:
    """Print a table for each size, and how the time of a query grows."""
    parser = Options("Compare searches of many vectors in little memory.", "search")
    parser.add_argument("--index", type=absolute, help="workdir of an index (default: oewn_examples, as shipped)")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 10, 100], help="multiples of the documents")
    parser.add_argument("--only", default="", help="parts of names of systems, divided by semicolons")
    parser.add_argument("--memory-gb", type=float, help="most GB of a process, without mapped files")
    given = parser.parse_args()
    tell, index = clock(), given.index or RUNS / "search-index"
    if given.index is None:
        run(place("oewn_examples", index), stages=STAGES)
    names = [name for name in SYSTEMS if not given.only or any(part in name for part in given.only.split(";"))]
    grown = []
    for times in given.times:
        folder, asked = prepared(index, given.workdir, times)
        count = len(np.load(folder / "vectors.npy", mmap_mode="r"))
        lists = 1 << round(float(np.log2(4 * count**0.5)))
        tell(f"{count:,} vectors, {lists:,} lists")
        rows = []
        for name in names:
            try:
                apart(limited, None, built, name, folder, lists)
            except ModuleNotFoundError as error:
                tell(f"{name}: left out, {error.name} is not installed")
                continue
            warm = within(given.memory_gb, warmed, name, folder, lists, asked)
            cold = warm and within(given.memory_gb, cooled, name, folder, lists, asked, warm["effort"])
            tell(f"{name}: {warm} {cold}")
            rows.append(line(name, warm, cold))
            if warm and name == "rayhier, leaves":
                grown.append((count, warm["alone"]))
        head = ["system", "effort", f"of the true {K}", "alone, warm, ms", "alone, cold, ms", "worst, cold, ms"]
        head += [f"batches of {TOGETHER:,}, a second", "MB beyond files", "opened cold, s"]
        limit = "" if given.memory_gb is None else f", at most {given.memory_gb:g} GB beyond files"
        print(f"\n{count:,} vectors, {lists:,} lists, one thread{limit}\n")
        print("\n".join(table(head, rows)), flush=True)
    if len(grown) > 1:
        sizes, times_taken = np.log(np.array(grown)).T
        print(f"\nrayhier, leaves: a query alone, warm, grows as N^{np.polyfit(sizes, times_taken, 1)[0]:.2f}")


def prepared(index: Path, workdir: Path, times: int) -> tuple[Path, dict[str, Asked]]:
    """The folder of the vectors, which are made once, and dev and test queries with their exact nearest."""
    name, _, vector_NM, splits = vectors(index, "dev", "test")
    folder = workdir / f"{name}-{times}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "vectors.npy").exists():
        harder(vector_NM, times, folder / "making.npy")
        (folder / "making.npy").rename(folder / "vectors.npy")
    every, asked = np.load(folder / "vectors.npy", mmap_mode="r"), {}
    set_threads(THREADS)
    for split, query_QM in zip(("dev", "test"), splits, strict=True):
        some_QM = query_QM[:ASKED]
        path = folder / f"least-{split}-{len(some_QM)}.npy"
        if not path.exists():
            np.save(path, Asked.of(some_QM, every, K).least_Q)
        asked[split] = Asked(some_QM, np.load(path))
    return folder, asked


def built(name: str, folder: Path, lists: int) -> None:
    """Build what a system asks, unless it is there; nothing limits its memory."""
    set_threads(THREADS)
    system(name, folder, lists, warm=False)


def system(name: str, folder: Path, lists: int, *, warm: bool) -> System:
    """Open a system that was built."""
    vector_NM = np.load(folder / "vectors.npy", mmap_mode="r")
    if name == "LanceDB IVF_PQ":
        return next(lance(vector_NM, lists, folder))
    if name == "DiskANN":
        return next(diskann(vector_NM, folder))
    ours = Ours(vector_NM, lists, folder)
    return ours.leaves(warm=warm) if name == "rayhier, leaves" else next(faiss_on_disk(ours, folder))


def warmed(name: str, folder: Path, lists: int, asked: dict[str, Asked]) -> dict[str, Any]:
    """Effort, recall, milliseconds a query alone, queries a second in batches, and the most memory it ever had."""
    set_threads(1)
    with watched() as sizes:
        opened = system(name, folder, lists, warm=True)
        vector_NM, query_QM = np.load(folder / "vectors.npy", mmap_mode="r"), asked["test"].query_QM
        effort = least(opened, asked["dev"], vector_NM)
        share = asked["test"].recall(opened.search(query_QM, effort), vector_NM)
        alone = partial(one_by_one, opened.search, query_QM[:ALONE], effort, 1)
        together = partial(one_by_one, opened.search, query_QM, effort, TOGETHER)
        seconds = {work: float(np.median([timed(work) for _ in range(5)])) for work in (alone, together)}
    measured = {"effort": effort, "recall": share, "alone": 1e3 * seconds[alone] / ALONE}
    return {**measured, "rate": len(query_QM) / seconds[together], "bytes": max(sizes)}


def cooled(name: str, folder: Path, lists: int, asked: dict[str, Asked], effort: Any) -> dict[str, float]:
    """Seconds of opening, and milliseconds of the first queries, once the system has dropped all files from memory."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    set_threads(1)
    began = time.perf_counter()
    opened = system(name, folder, lists, warm=False)
    took = time.perf_counter() - began
    query_QM = asked["test"].query_QM[:COLD]
    first = [timed(partial(opened.search, query_QM[row : row + 1], effort)) for row in range(len(query_QM))]
    return {"opened": took, "cold": float(1e3 * np.median(first)), "worst": float(1e3 * max(first))}


def within(memory_gb: float | None, work: Callable[..., Any], *arguments: Any) -> Any:
    """What a piece of work returns, done in a process whose memory is limited; None where that was too little."""
    try:
        return apart(limited, memory_gb, work, *arguments)
    except MemoryError as error:
        say(f"{arguments[0]}, {work.__name__}: {error}")
        return None


def limited(memory_gb: float | None, work: Callable[..., Any], *arguments: Any) -> Any:
    """What a piece of work returns in this process; MemoryError as soon as the process holds more beyond files.

    Linux's own limit, RLIMIT_DATA, counts what was never touched too: hundreds of LanceDB's threads have a stack each,
    and its allocator reserves a gigabyte, of which it holds half. What libraries print goes to standard error, since
    tables are on standard output.
    """
    os.dup2(2, 1)
    most, future = float("inf") if memory_gb is None else 1e9 * memory_gb, Future[Any]()

    def carry_out() -> None:
        try:
            future.set_result(work(*arguments))
        except Exception as error:  # noqa: BLE001 - raised again below
            future.set_exception(error)

    threading.Thread(target=carry_out, daemon=True).start()  # ends with the process where it takes too much
    while not future.done():
        wait([future], EVERY)
        if (bytes_held := held("RssAnon")) > most:
            raise MemoryError(f"{bytes_held / 1e6:,.0f} MB beyond files, at most {most / 1e6:,.0f} allowed")
    return future.result()


def held(kind: str) -> int:
    """Bytes of a kind of memory of this process, as /proc names it."""
    return int(Path("/proc/self/status").read_text().split(f"{kind}:")[1].split()[0]) << 10


@contextmanager
def watched() -> Iterator[list[int]]:
    """Bytes of this process that are not of files, looked at again and again while the block runs."""
    sizes = [0]
    with watching(lambda: sizes.append(held("RssAnon")), EVERY):
        yield sizes


def line(name: str, warm: dict[str, Any] | None, cold: dict[str, float] | None) -> list[str]:
    """A row of the table."""
    if warm is None:
        return [name, TOO_LITTLE, *[UNKNOWN] * 7]
    shown = "{cold:.1f}", "{worst:.0f}", "{opened:.1f}"
    median, worst, opened = (TOO_LITTLE if cold is None else text.format(**cold) for text in shown)
    return [
        name,
        str(warm["effort"]).strip("()"),
        f"{warm['recall']:.3f}",
        f"{warm['alone']:.2f}",
        median,
        worst,
        f"{warm['rate']:,.0f}",
        f"{warm['bytes'] / 1e6:,.0f}",
        opened,
    ]


if __name__ == "__main__":
    main()

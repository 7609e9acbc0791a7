"""Searches of a published index, by leaves and by codes of all documents: `python -m benchmarks.all_by_codes WORKDIR`.

Measures on dev queries, share of exact search's best ten that are found, milliseconds of a query alone, and queries a
second in batches of 64, on one thread, in rounds that take turns: leaves as the spec visits them, codes with short
lists of several sizes, and exact search of all leaves. Queries are vectors: encoding is not timed.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.commands import Options, absolute
from benchmarks.tables import table
from rayhier.arrays import Floats
from rayhier.cluster.library import faiss
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import load_queries
from rayhier.search.index import open_leaf_map
from rayhier.search.model import Model
from rayhier.search.searcher import Searcher
from rayhier.spec.search import SearchSpec
from rayhier.storage import current
from rayhier.storage.current import Current
from rayhier.storage.paths import Location, locate

K, TEN, BATCH, ROUNDS, ALONE = 100, 10, 64, 5, 100
MEASURES = ("nDCG@10", "R@100")
SHORTLISTS = (100, 300, 1000)


def main() -> int:
    """Print the table of an index."""
    parser = Options("Searches by leaves and by codes of all documents, on dev.")
    parser.add_argument("target", metavar="WORKDIR", type=absolute, help="where a run built an index")
    root = locate(str(parser.parse_args().target))
    now = current.read(root)
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    settings = {"leaves, as the spec": SearchSpec(k=K, beam=now.spec.search.beam)}
    settings |= {f"codes, best {most:,} again": SearchSpec(k=K, how="codes", shortlist=most) for most in SHORTLISTS}
    settings["all leaves, exact"] = SearchSpec(k=K, beam=1_000_000)
    searchers = {name: _opened(root, now, search) for name, search in settings.items()}
    corpus, vectors = (current.artifact(root, now, kind) for kind in ("corpus", "vectors"))
    dev = load_queries(corpus, vectors, "dev")
    query_QM = searchers["all leaves, exact"].model.encode_stored(dev.vector_QM, lambda: dev.texts).numpy
    judge = Judge(dev, MEASURES)
    best = {name: _ids(searcher, query_QM) for name, searcher in searchers.items()}
    timed = _timed(searchers, query_QM)
    rows = []
    for name, searcher in searchers.items():
        values = judge.mean(searcher.retrieve(searcher.rules.request(query_QM, name="vectors")).ranking)
        share = np.mean([len({*a} & {*b}) / TEN for a, b in zip(best[name], best["all leaves, exact"], strict=True)])
        alone, together = timed[name]
        rows.append([name, *(f"{values[m]:.3f}" for m in MEASURES), f"{share:.3f}", f"{alone:.2f}", f"{together:,.0f}"])
    first = searchers["all leaves, exact"]
    print(f"{now.spec.name}: {first.manifest.documents:,} documents, {len(dev)} dev queries, one thread\n")
    print("\n".join(table(["search", *MEASURES, f"of the true {TEN}", "ms alone", f"a second, by {BATCH}"], rows)))
    return 0


def _opened(root: Location, now: Current, search: SearchSpec) -> Searcher:
    changed = now.model_copy(update={"spec": now.spec.model_copy(update={"search": search})})
    return Searcher.over(Model.of_workdir(root, changed).load(), open_leaf_map(root, changed), {})


def _ids(searcher: Searcher, query_QM: Floats) -> list[list[str]]:
    return [[hit.id for hit in answer.hits[:TEN]] for answer in searcher.search(query_QM)]


def _timed(searchers: dict[str, Searcher], query_QM: Floats) -> dict[str, tuple[float, float]]:
    """Median milliseconds of a query alone, and queries a second in batches, by the search's name."""
    alone: dict[str, list[float]] = {name: [] for name in searchers}
    together: dict[str, list[float]] = {name: [] for name in searchers}
    picked = np.resize(np.arange(len(query_QM)), max(BATCH, len(query_QM)))
    for _ in range(ROUNDS):
        for name, searcher in searchers.items():
            alone[name] += [_seconds(searcher, query_QM[row : row + 1]) for row in range(min(ALONE, len(query_QM)))]
            batches = [
                _seconds(searcher, query_QM[part]) for part in np.split(picked, range(BATCH, len(picked), BATCH))
            ]
            together[name].append(len(picked) / sum(batches))
    return {name: (1e3 * float(np.median(alone[name])), float(np.median(together[name]))) for name in searchers}


def _seconds(searcher: Searcher, query_QM: Floats | Sequence[str]) -> float:
    began = time.perf_counter()
    searcher.retrieve(searcher.rules.request(query_QM, name="vectors"))
    return time.perf_counter() - began


if __name__ == "__main__":
    main()

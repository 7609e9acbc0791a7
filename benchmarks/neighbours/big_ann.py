"""rayhier in big-ann-benchmarks' runner of streams of changes: `python -m benchmarks.neighbours.big_ann CHECKOUT`.

The checkout's run.py inserts, deletes and replaces vectors as its runbooks say, and searches in between; recall is its
own, of each search. The true neighbours, which a tool of DiskANN computes there, are those of an exact search here, in
files of its format. The checkout is a clone of REPOSITORY at COMMIT; what its runner imports is in requirements.txt of
this folder.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.commands import Options, absolute, clock
from benchmarks.neighbours import checkouts
from benchmarks.neighbours.checkouts import run
from benchmarks.tables import table
from rayhier.arrays import Floats, Ints

REPOSITORY = "https://github.com/harsha-simhadri/big-ann-benchmarks"
COMMIT = "452e508b72e98f1be6e7bca1a6c98dbf1bc5e967"
ADAPTER = Path(__file__).parent / "big_ann_benchmarks"
RUNBOOKS = ("simple_runbook.yaml", "simple_replace_runbook.yaml")
TRUE = 100
"""True neighbours of a query in a file."""
DATASET = "random-xs"
"""Ten thousand vectors of 20 numbers, in a thousand clusters, and a thousand queries."""
RECALLS = """
import json, sys
import numpy
from benchmark.dataset_io import knn_result_read
from benchmark.datasets import DATASETS
from benchmark.plotting.metrics import get_recall_values
from benchmark.results import load_all_results
from benchmark.streaming.compute_gt import gt_dir

dataset, runbook, out = sys.argv[1:]
truth, rows = gt_dir(DATASETS[dataset](), runbook), []
for about, found in load_all_results(dataset, neurips23track="streaming", runbook_path=runbook):
    recalls = []
    for search in range(about["num_searches"]):
        step = about[f"step_{search}"]
        true = knn_result_read(f"{truth}/step{step}.gt100")
        recalls.append(get_recall_values(true, numpy.array(found[f"neighbors_step{step}"]), about["count"])[0])
    rows.append({"name": about["name"], "recalls": recalls, "documents_visited": about["documents_visited"]})
with open(out, "w") as file:
    json.dump(rows, file, default=float)
"""
"""What runs in the checkout: recall of each search by its own measure, of each result, as JSON."""


def install(checkout: Path) -> None:
    """Put rayhier's module, settings and Dockerfile where the streaming track looks for algorithms."""
    shutil.copytree(ADAPTER, checkout / "neurips23" / "streaming" / "rayhier", dirs_exist_ok=True)


def steps(checkout: Path, runbook: str) -> list[dict[str, Any]]:
    """The operations of a runbook, in order; of the first the number is 1."""
    told = yaml.safe_load((checkout / "neurips23" / "runbooks" / runbook).read_text())[DATASET]
    return [told[number] for number in range(1, len(told) + 1) if number in told]


def standing(operations: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, dict[int, int]]]:
    """Number of each search's step, and which vector each tag has then."""
    there = dict[int, int]()
    for number, step in enumerate(operations, start=1):
        match step["operation"]:
            case "insert":
                there.update((tag, tag) for tag in range(step["start"], step["end"]))
            case "delete":
                for tag in range(step["start"], step["end"]):
                    del there[tag]
            case "replace":
                tags = range(step["tags_start"], step["tags_end"])
                there.update(zip(tags, range(step["ids_start"], step["ids_end"]), strict=True))
            case "search":
                yield number, dict(there)


def true_neighbours(query_QM: Floats, vector_NM: Floats, tags: Ints) -> tuple[Ints, Floats]:
    """Tags [q, 100] of the nearest of vectors [n, m] that have tags [n], and squared distances [q, 100]."""
    vectors, queries = vector_NM.astype(np.float64), query_QM.astype(np.float64)
    square_QN = (queries**2).sum(axis=1)[:, None] - 2 * queries @ vectors.T + (vectors**2).sum(axis=1)
    order_QK = np.argsort(square_QN, axis=1, kind="stable")[:, :TRUE]
    return tags[order_QK], np.take_along_axis(square_QN, order_QK, axis=1).astype(np.float32)


def write_truth(checkout: Path, runbook: str) -> None:
    """Write the true neighbours at each search of a runbook into the files that the checkout's measures read."""
    folder = checkout / "data" / "random10000"
    vector_NM, query_QM = (matrix(folder / name) for name in ("data_10000_20", "queries_1000_20"))
    there = folder / "10000" / runbook
    there.mkdir(parents=True, exist_ok=True)
    for number, vector_of in standing(steps(checkout, runbook)):
        tag_QK, square_QK = true_neighbours(query_QM, vector_NM[list(vector_of.values())], np.array(list(vector_of)))
        with (there / f"step{number}.gt100").open("wb") as file:
            for part in (np.array(tag_QK.shape, np.uint32), tag_QK.astype(np.int32), square_QK):
                part.tofile(file)


def matrix(path: Path) -> Floats:
    """Read vectors [n, m] from a file of the checkout: n and m in 32 bits each, then float32."""
    n, m = np.fromfile(path, np.uint32, 2)
    return np.fromfile(path, np.float32, offset=8).reshape(n, m)


def measure(checkout: Path, runbook: str) -> list[dict[str, Any]]:
    """Have the checkout's run.py follow a runbook with each of rayhier's settings; exits where it cannot.

    Returns of each setting `name`, the recall of each search as the checkout counts it, and `documents_visited`.
    """
    path, read = f"neurips23/runbooks/{runbook}", checkout / "rayhier.json"
    folder = checkout / "results" / "neurips23" / "streaming" / runbook / DATASET
    about = "--neurips23track", "streaming", "--dataset", DATASET, "--runbook_path", path, "--algorithm", "rayhier"
    checkouts.measure(checkout, folder, *about, "--nodocker")
    run(checkout, "-c", RECALLS, DATASET, path, str(read))
    measured: list[dict[str, Any]] = json.loads(read.read_text())
    return sorted(measured, key=lambda row: str(row["name"]))


def main() -> None:
    """Follow the runbooks and print recall."""
    parser = Options("rayhier in big-ann-benchmarks' runner of streams of changes.")
    parser.add_argument("checkout", type=absolute, help="a clone of big-ann-benchmarks, which is changed")
    options, tell = parser.parse_args(), clock()
    install(options.checkout)
    run(options.checkout, "create_dataset.py", "--dataset", DATASET)
    lines = []
    for runbook in RUNBOOKS:
        write_truth(options.checkout, runbook)
        for row in measure(options.checkout, runbook):
            recalls = " ".join(f"{recall:.3f}" for recall in row["recalls"])
            lines.append([runbook, row["name"], recalls, f"{row['documents_visited']:,.0f}"])
        tell(runbook)
    print("\n".join(table(["runbook", "setting", "recall@10 of each search", "visited"], lines)))


if __name__ == "__main__":
    main()

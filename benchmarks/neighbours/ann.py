"""rayhier in ann-benchmarks' own runner, beside faiss and hnswlib: `python -m benchmarks.neighbours.ann CHECKOUT`.

The vectors are those of a collection's texts by the untouched encoder, the queries' of its test split. The checkout's
run.py measures each algorithm in a process of its own, on one processor, and its plot.py draws.
The checkout is a clone of REPOSITORY at COMMIT; what its runner imports is in requirements.txt of this folder.
"""

import csv
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.collection import Collection
from benchmarks.commands import Options, absolute, clock
from benchmarks.neighbours import checkouts
from benchmarks.neighbours.checkouts import run
from benchmarks.tables import UNKNOWN, table
from rayhier.arrays import Floats

REPOSITORY = "https://github.com/erikbern/ann-benchmarks"
COMMIT = "f402b2cc17b980d7cd45241ab5a7a4cc0f965e55"
ADAPTER = Path(__file__).parent / "ann_benchmarks"
SMALL: dict[str, dict[str, dict[str, Any]]] = {
    "faiss": {
        "faiss-ivf": {"base": {"args": [[256, 1024]]}},
        "faiss-ivfpqfs": {"base": {"args": [[512, 1024]], "query_args": [[5, 10, 50, 100, 200], [10]]}},
    },
    "hnswlib": {"hnswlib": {"M-16": {}, "M-36": {}}},
}
"""Run groups of each algorithm that are measured, by the folder of its module, with what replaces the checkout's."""
K = 10
GOALS = (0.9, 0.95, 0.99)
"""Recalls for which the fastest setting is printed."""


def install(checkout: Path) -> None:
    """Put rayhier's module, settings and Dockerfile where ann-benchmarks looks for algorithms."""
    shutil.copytree(ADAPTER, checkout / "ann_benchmarks" / "algorithms" / "rayhier", dirs_exist_ok=True)


def write_dataset(checkout: Path, name: str, document_NM: Floats, query_QM: Floats, distance: str) -> None:
    """Write the file of a dataset with the true neighbours, and its name into the list of datasets.

    Both by the checkout's own function, in a process of its own, as it counts on its folder.
    """
    vectors = checkout / "vectors.npz"
    np.savez(vectors, train=document_NM, test=query_QM)
    code = (
        "import sys, numpy; from ann_benchmarks.datasets import get_dataset_fn, write_output;"
        "vectors = numpy.load('vectors.npz');"
        "write_output(vectors['train'], vectors['test'], get_dataset_fn(sys.argv[1]), sys.argv[2])"
    )
    run(checkout, "-c", code, name, distance)
    vectors.unlink()
    names = checkout / "ann_benchmarks" / "datasets.py"
    line = f'DATASETS["{name}"] = print  # data/{name}.hdf5 is there already\n'
    if line not in names.read_text():
        names.write_text(f"{names.read_text()}\n{line}")


def write_definitions(checkout: Path, folder: Path) -> list[str]:
    """Write rayhier's settings and a part of the peers' to a folder; returns the algorithms' names."""
    names, kept = list[str](), {}
    for module, algorithms in {"rayhier": {}, **SMALL}.items():
        settings = yaml.safe_load((checkout / "ann_benchmarks/algorithms" / module / "config.yml").read_text())
        chosen = [each for each in settings["float"]["any"] if not algorithms or each["name"] in algorithms]
        for each in chosen:
            groups = algorithms.get(each["name"], {name: {} for name in each["run_groups"]})
            each["run_groups"] = {name: {**each["run_groups"][name], **new} for name, new in groups.items()}
        kept[module] = {"float": {"any": chosen}}
        names += [each["name"] for each in chosen]
    for module, settings in kept.items():
        (folder / module).mkdir(parents=True, exist_ok=True)
        (folder / module / "config.yml").write_text(yaml.safe_dump(settings))
    return names


def measure(checkout: Path, dataset: str, definitions: Path, algorithm: str, *arguments: str) -> None:
    """Have the checkout's run.py measure one algorithm anew for ten results of a query; exits where it cannot."""
    folder = checkout / "results" / dataset / str(K) / f"{algorithm}{'-batch' if '--batch' in arguments else ''}"
    about = "--dataset", dataset, "--count", str(K), "--definitions", str(definitions), "--algorithm", algorithm
    checkouts.measure(checkout, folder, "--local", *about, *arguments)


def results(checkout: Path, dataset: str) -> list[dict[str, str]]:
    """Measures of every setting by the checkout's data_export.py, as texts by its names, such as k-nn and qps."""
    run(checkout, "data_export.py", "--output", "results.csv")
    with (checkout / "results.csv").open(newline="") as lines:
        return [row for row in csv.DictReader(lines) if row["dataset"] == dataset]


def fastest(rows: Iterable[dict[str, str]], least: float) -> dict[str, str] | None:
    """The setting with the least median time of a query, of those that find at least a share of the true neighbours.

    A busy machine changes the median less than the mean, from which queries a second are computed.
    """
    return min((row for row in rows if float(row["k-nn"]) >= least), key=lambda row: float(row["p50"]), default=None)


def lines(rows: list[dict[str, str]], names: Iterable[str], least: float) -> list[list[str]]:
    """Lines of the table for a recall: of each algorithm its fastest setting, the fastest of all first."""
    best = {name: fastest((row for row in rows if row["algorithm"] == name), least) for name in names}
    cells = []
    for name, row in sorted(best.items(), key=lambda pair: float(pair[1]["p50"]) if pair[1] else np.inf):
        if row is None:
            cells.append([f"{least:g}", name, "none reaches it", *[UNKNOWN] * 6])
            continue
        found, milliseconds, rate, compared, built, grown = (
            float(row[measure]) for measure in ("k-nn", "p50", "qps", "distcomps", "build", "indexsize")
        )
        measured = [f"{found:.3f}", f"{milliseconds:.2f}", f"{rate:,.0f}", f"{compared:,.0f}" if compared else UNKNOWN]
        cells.append([f"{least:g}", name, row["parameters"], *measured, f"{built:,.0f}", f"{grown / 1e3:,.0f}"])
    return cells


def main() -> None:
    """Measure, print the table and draw the plot."""
    parser = Options("rayhier in ann-benchmarks' own runner.", "neighbours")
    parser.add_argument("checkout", type=absolute, help="a clone of ann-benchmarks, which is changed")
    parser.add_argument("--collection", default="oewn_examples", help="whose texts are encoded (default oewn_examples)")
    parser.add_argument("--queries", type=int, default=1_000, help="of its test split, at most (default 1,000)")
    parser.add_argument("--runs", type=int, default=3, help="of each setting, of which the fastest counts (default 3)")
    parser.add_argument("--only", nargs="+", help="algorithms that are measured; what is there of others stays")
    parser.add_argument("--out", type=absolute, help="the plot; default: below results/ of the checkout")
    options, tell = parser.parse_args(), clock()
    collection = Collection(options.collection, options.workdir / options.collection)
    document_NM, query_QM = collection.documents.vector_NM, collection.queries("test").vector_QM[: options.queries]
    dataset = f"{options.collection}-{document_NM.shape[1]}-angular"
    tell(f"{dataset}: {len(document_NM):,} vectors, {len(query_QM):,} queries")
    install(options.checkout)
    write_dataset(options.checkout, dataset, document_NM, query_QM, "angular")
    names = write_definitions(options.checkout, options.workdir / "definitions")
    for name in options.only or names:
        measure(options.checkout, dataset, options.workdir / "definitions", name, "--runs", str(options.runs))
        tell(name)
    drawn = options.out or options.checkout / "results" / f"{dataset}.png"
    drawn.parent.mkdir(parents=True, exist_ok=True)
    scales = "--y-scale", "log", "--x-scale", "a3"
    run(options.checkout, "plot.py", "--dataset", dataset, *scales, "--output", str(drawn))
    rows = results(options.checkout, dataset)
    head = ["at least", "algorithm", "setting", "recall@10", "median, ms", "queries/s", "compared", "built, s", "MB"]
    print("\n".join(table(head, [line for least in GOALS for line in lines(rows, names, least)])))


if __name__ == "__main__":
    main()

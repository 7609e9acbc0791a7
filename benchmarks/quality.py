"""Documents visited against recall, every system beside its controls: `make bench-quality`.

docs/quality.md has the protocol, quality_systems.py what is compared, quality_page.py what becomes of the curves that
are measured here. Every curve is a file below WORKDIR/NAME/cache with the recall, documents visited and cost of every
query at every beam, so a run that was interrupted goes on, and one that is complete only writes its page again. After
a change of code remove the cache.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import faiss
import numpy as np
import torch

from quality_collection import SPEC, Data, View
from quality_goals import Measured, Results
from quality_page import write_page
from quality_scan import Asked
from quality_stats import Curve, mean_curve
from quality_systems import JOINT, LISTS, build
from rayhier.dataset.balance import balance
from rayhier.evaluate.systems.ivf import list_choices
from rayhier.evaluate.curve import Point, reach
from rayhier.spec import load

ROOT = Path(__file__).parents[1]
COLLECTIONS = ("scifact", "acl_title2abs", "oewn_examples", "cranfield")
TUNED = (
    "faiss_ivf",
    "faiss_ivf_same_encoder",
    "faiss_ivf_spill",
    "scann",
    "recipe",
    "ehi@dev",
    "ehi_warm",
    "ehi_cold",
)
"""Systems whose number of leaves or lists is chosen on dev."""
JOINT_LEAVES = (64, 256, 1024)
JOINT_ON = ("scifact",)
"""Where it runs: elsewhere its epochs take hours on two cores."""
EQUAL = ("faiss_ivf_same_encoder", "faiss_ivf_spill", "recipe", "ehi")
"""Systems measured at equal leaf counts too."""
SHAPES = {"scifact": ((64, 1), (8, 2), (4, 3)), "oewn_examples": ((1024, 1), (32, 2))}
"""Children of a node and levels, equal leaf counts."""
BESIDE_SEEDS = 3
"""Of what stands beside the main table."""
FOLDS = {"scifact": 5}
"""Collections with too few dev queries to choose on: parts of the train queries, each in turn held out."""
ENOUGH = 0.95
BEGAN = time.monotonic()


def say(text: str) -> None:
    """Progress, with the seconds so far."""
    print(f"{time.monotonic() - BEGAN:7.0f} s  {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Measurement:
    """One system with so many leaves (0: it has none) and one seed: a file of results."""

    system: str
    leaves: int
    seed: int

    @property
    def file(self) -> str:
        """Its name."""
        return f"{self.system}-{self.leaves}-{self.seed}.npz"


class Bench:
    """A collection's choices and curves, kept below its cache."""

    def __init__(self, name: str, workdir: Path, seeds: int, split: str) -> None:
        self.name, self.workdir, self.seeds, self.split = name, workdir, seeds, split
        self.spec = load(SPEC, [])
        shipped = json.dumps([getattr(self.spec, part).model_dump() for part in ("router", "train", "index")])
        digest = hashlib.blake2b(shipped.encode(), digest_size=4).hexdigest()
        self.folder = workdir / name / "cache" / digest
        self._view: View | None = None

    @cached_property
    def data(self) -> Data:
        """Loaded when something is left to measure."""
        return Data(self.name, self.workdir, self.split)

    @property
    def tuned(self) -> tuple[str, ...]:
        """Systems that choose their leaves; ScaNN where it is installed."""
        scann = importlib.util.find_spec("scann") is not None
        left_out = set() if scann else {"scann"}
        left_out |= set() if self.name in JOINT_ON else set(JOINT)
        return tuple(name for name in TUNED if name not in left_out)

    def view(self, seed: int) -> View:
        """The trained encoder of a seed; the last one stays."""
        if self._view is None or self._view.seed != seed:
            self._view = View(self.data, self.data.examples, seed, self.folder / f"seed-{seed}")
        return self._view

    def base(self, seed: int) -> View:
        """The encoder as it came."""
        return View(self.data, self.data.examples, seed, self.folder, base=True)

    @cached_property
    def choices(self) -> dict[str, int]:
        """The corpus's `documents`, and the leaves of every tuned system."""
        path = self.folder / "choices.json"
        saved = json.loads(path.read_text()) if path.is_file() else {"costs": {}}
        for name in self.tuned:
            if name not in saved["costs"]:
                saved["documents"] = len(self.data.documents.ids)
                saved["costs"][name] = self._costs(name)
                write(path, json.dumps(saved, indent=1).encode())
        best = {name: int(min(costs, key=costs.get)) for name, costs in saved["costs"].items()}
        return {"documents": saved["documents"], **best}

    @cached_property
    def _settings(self) -> list[tuple[View, View, Asked]]:
        """What choosing asks: base and trained encoders, and queries that neither was trained on."""
        data, base = self.data, self.base(0)
        if self.name not in FOLDS:
            return [(base, self.view(0), data.chooses)]
        folds = enumerate(data.folds(FOLDS[self.name]))
        return [(base, View(data, ex, 0, self.folder / f"fold-{fold}"), asked) for fold, (ex, asked) in folds]

    def _costs(self, name: str) -> dict[str, float]:
        """Mean cost for 95% of exact R@100 by number of leaves, those that cannot be the least left out."""
        documents = len(self.data.documents.ids)
        choices = list_choices(documents)
        if name in JOINT:
            choices = [leaves for leaves in JOINT_LEAVES if leaves <= documents / 4]
        costs: dict[str, float] = {}
        best = np.inf
        for leaves in choices:
            if (name in LISTS or name == "scann") and leaves / documents >= best:
                break
            total = 0.0
            for base, trained, asked in self._settings:
                view = base if name == "faiss_ivf" else trained
                total += self._cost(view, name, leaves, asked, best * len(self._settings) - total)
                if not np.isfinite(total):
                    break
            cost = total / len(self._settings)
            best = min(best, cost)
            costs[str(leaves)] = cost
            say(f"{self.name}: {name} with {leaves} leaves costs {cost:.4f}")
        return costs

    def _cost(self, view: View, name: str, leaves: int, asked: Asked, most: float) -> float:
        """Cost for 95% of exact R@100; infinite where it is never reached or more than so much."""
        built = build(view, name, leaves, asked)

        def points() -> Iterator[Point]:
            for row in built.walk():
                point = row.point()
                yield point
                if point.cost_mean > most:
                    return

        cost = reach(points(), "R@100", ENOUGH * float(built.exact().mean()))
        return cost if np.isfinite(cost) and cost <= most else np.inf

    @property
    def shipped(self) -> int:
        """Leaves as `auto` has them."""
        return self.spec.router.leaves(self.choices["documents"])

    @property
    def equal(self) -> int:
        """The power of two below."""
        return 1 << (self.shipped - 1).bit_length() - 1

    def main_runs(self, system: str) -> list[Measurement]:
        """The seeds of a system of the main table."""
        leaves = {"ehi": self.shipped, "untaught": self.shipped, "hnsw": 0}
        chosen = leaves[system] if system in leaves else self.choices[system]
        return [Measurement(system, chosen, seed) for seed in range(self.seeds)]

    def beside_runs(self, system: str, leaves: int) -> list[Measurement]:
        """The seeds of a system of the tables beside it."""
        return [Measurement(system, leaves, seed) for seed in range(min(BESIDE_SEEDS, self.seeds))]

    @property
    def systems(self) -> list[str]:
        """Rows of the main table."""
        return [*self.tuned, "hnsw", "untaught", "ehi"]

    @property
    def shapes(self) -> dict[str, list[Measurement]]:
        """Seeds of each tree of equal leaf counts."""
        shapes = SHAPES.get(self.name, ())
        return {
            f"({branching}, {height})": self.beside_runs(f"taught_{branching}x{height}", branching**height)
            for branching, height in shapes
        }

    @property
    def wanted(self) -> list[Measurement]:
        """All measurements, a seed's together."""
        runs = [run for system in self.systems for run in self.main_runs(system)]
        runs += [run for system in EQUAL for run in self.beside_runs(system, self.equal)]
        runs += [run for seeds in self.shapes.values() for run in seeds]
        return sorted(dict.fromkeys(runs), key=lambda run: run.seed)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to measure."""
        path = self.folder / "choices.json"
        chosen = path.is_file() and set(json.loads(path.read_text())["costs"]) >= set(self.tuned)
        return chosen and all(self._path(run).is_file() for run in self.wanted)

    def measure(self) -> None:
        """All that is left."""
        for wanted in self.wanted:
            if not self._path(wanted).is_file():
                began = time.monotonic()
                self._measure(wanted)
                say(f"{self.name}: {wanted.file} in {time.monotonic() - began:.0f} s")

    def _measure(self, wanted: Measurement) -> None:
        view = self.base(wanted.seed) if wanted.system == "faiss_ivf" else self.view(wanted.seed)
        built = build(view, wanted.system, wanted.leaves, self.data.asked)
        rows = list(built.walk())
        path = self._path(wanted)
        partial = path.with_suffix(".part")
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            np.savez(
                file,
                beam=np.array([row.beam for row in rows]),
                recall=np.stack([row.recall_Q for row in rows]),
                visited=np.stack([row.visited_Q for row in rows]),
                cost=np.stack([row.cost_Q for row in rows]),
                exact=built.exact(),
                sizes=built.sizes,
            )
        partial.replace(path)

    def _path(self, run: Measurement) -> Path:
        return self.folder / self.split / run.file

    def results(self) -> Results:
        """What the page shows."""
        main = {system: self._measured(self.main_runs(system)) for system in self.systems}
        beside = {system: self._measured(self.beside_runs(system, self.equal)) for system in EQUAL}
        shapes = {shape: self._measured(runs) for shape, runs in self.shapes.items()}
        return Results(self.name, self.choices["documents"], self.seeds, main, beside, shapes)

    def _measured(self, runs: Sequence[Measurement]) -> Measured:
        """The mean over seeds, and each seed's balance, nothing for what has no leaves."""
        curves, balances = [], []
        for wanted in runs:
            with np.load(self._path(wanted)) as saved:
                names = ("recall", "visited", "cost", "exact")
                curves.append(Curve(*(saved[name].astype(np.float64) for name in names)))
                balances += [balance(saved["sizes"])] if len(saved["sizes"]) else []
        return Measured(runs[0].leaves, len(runs), mean_curve(curves), balances)


def write(path: Path, content: bytes) -> None:
    """All of a file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_bytes(content)
    partial.replace(path)


def finished(name: str, workdir: Path, seeds: int, split: str) -> Bench | None:
    """A collection with as many seeds as are measured; None before the first."""
    benches = (Bench(name, workdir, count, split) for count in range(seeds, 0, -1))
    return next((bench for bench in benches if bench.complete), None)


def main() -> int:
    """Measure the given collections, then write the page of all that are complete."""
    parser = argparse.ArgumentParser(description="Documents visited against recall, beside controls.")
    parser.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=COLLECTIONS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workdir", type=Path, default=ROOT / "runs" / "quality")
    parser.add_argument("--split", choices=("test", "dev"), default="test", help="dev: for work on this file itself")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    faiss.omp_set_num_threads(given.threads)
    workdir = given.workdir.absolute()
    for name in given.collections:
        Bench(name, workdir, given.seeds, given.split).measure()
    every = [finished(name, workdir, given.seeds, given.split) for name in COLLECTIONS]
    folder = ROOT / "docs" if given.split == "test" else workdir
    print(write_page([bench.results() for bench in every if bench is not None], folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Choices and curves of a collection, kept below its cache: which are left to measure, and which the page shows."""

import importlib.util
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks import cache
from benchmarks.collection import SPEC, Collection
from benchmarks.commands import clock
from benchmarks.quality.page import Outcome, Results
from benchmarks.quality.systems import LISTS, build, columns
from benchmarks.quality.view import Questions, View
from benchmarks.statistics import Curve, mean_curve
from rayhier.arrays import Bools
from rayhier.dataset.balance import balance
from rayhier.dataset.queries import Queries, new_answers
from rayhier.evaluate.baselines.ivf import list_choices
from rayhier.evaluate.curve import Point, reach
from rayhier.spec import load
from rayhier.storage import files

COLLECTIONS = ("scifact", "acl_title2abs", "oewn_examples", "cranfield")
TUNED = (
    "faiss_ivf",
    "faiss_ivf_same_encoder",
    "faiss_ivf_spill",
    "scann",
    "learned_ivf@dev",
)
"""Systems whose number of leaves or lists is chosen on dev."""
EQUAL = ("faiss_ivf_same_encoder", "faiss_ivf_spill", "learned_ivf")
"""Systems measured at equal leaf counts too."""
"""Children of a node and levels, equal leaf counts."""
BESIDE_SEEDS = 3
"""Seeds of what stands beside the main table."""
FOLDS = {"scifact": 5}
"""Collections with too few dev queries to choose on: parts of the train queries, each in turn held out."""
ENOUGH = 0.95
say = clock()


@dataclass(frozen=True)
class Measurement:
    """One system with a number of leaves (0: it has none) and one seed: a file of results."""

    system: str
    leaves: int
    seed: int


class Bench:
    """A collection's choices and curves, kept below its cache."""

    def __init__(self, name: str, workdir: Path, seeds: int, split: str) -> None:
        self.name, self.workdir, self.seeds, self.split = name, workdir, seeds, split
        self.spec = load(SPEC, [])
        shipped = (getattr(self.spec, part).model_dump() for part in ("encoder", "train", "router", "index"))
        self.folder = workdir / name / "cache" / cache.key(*shipped)
        self._view: View | None = None

    @cached_property
    def collection(self) -> Collection:
        """The collection, loaded when something is left to measure."""
        return Collection(self.name, self.workdir / self.name)

    @cached_property
    def asked(self) -> Queries:
        """Queries of the final measurement: nothing else reads the test split."""
        return self.collection.dev if self.split == "dev" else self.collection.queries(self.split)

    @cached_property
    def final(self) -> Questions:
        """What is relevant to these."""
        return Questions.of(self.asked, self.collection.documents.ids)

    @cached_property
    def new(self) -> Bools:
        """Whether each of these has new answers, which no train query has, [q]."""

        def make() -> dict[str, Bools]:
            answers = self.collection.examples.answers(self.collection.documents.results)
            return {"new": new_answers(self.asked, answers)}

        return cache.kept(self.folder / self.split / "new.npz", make)["new"]

    @property
    def tuned(self) -> tuple[str, ...]:
        """Systems that choose their leaves; ScaNN where it is installed."""
        return tuple(name for name in TUNED if name != "scann" or importlib.util.find_spec("scann") is not None)

    def view(self, seed: int) -> View:
        """The collection in the vectors of a seed's trained encoder; only the last seed asked for stays in memory."""
        if self._view is None or self._view.seed != seed:
            self._view = View(self.collection, self.collection.examples, seed, self.folder / f"seed-{seed}")
        return self._view

    def base(self, seed: int) -> View:
        """The collection in the vectors of the untrained encoder."""
        return View(self.collection, self.collection.examples, seed, self.folder, base=True)

    @cached_property
    def choices(self) -> dict[str, int]:
        """The corpus's `documents`, and the leaves of every tuned system."""
        path = self.folder / "choices.json"
        saved = files.read_json(path) if path.is_file() else {"costs": {}}
        for name in self.tuned:
            if name not in saved["costs"]:
                saved["documents"] = len(self.collection.documents.ids)
                saved["costs"][name] = self._costs(name)
                files.write_json(path, saved)
        best = {name: min(costs, key=lambda leaves: costs[leaves] or np.inf) for name, costs in saved["costs"].items()}
        return {"documents": saved["documents"], **{name: int(leaves) for name, leaves in best.items()}}

    @cached_property
    def _settings(self) -> list[tuple[View, View, Questions]]:
        """Encoders and queries by which settings are chosen: base, trained, and queries that neither was trained on."""
        base, ids = self.base(0), self.collection.documents.ids
        if self.name not in FOLDS:
            return [(base, self.view(0), Questions.of(self.collection.dev, ids))]
        queries, found = self.collection.queries("train"), []
        for fold, (examples, asked_Q) in enumerate(self.collection.folds(FOLDS[self.name])):
            trained = View(self.collection, examples, 0, self.folder / f"fold-{fold}")
            found.append((base, trained, Questions.of(queries.some(asked_Q), ids)))
        return found

    def _costs(self, name: str) -> dict[str, float | None]:
        """Mean cost for 95% of exact R@100 by number of leaves, those left out that cannot be the least.

        None where so much recall is never reached, or costs more than with fewer leaves.
        """
        documents = len(self.collection.documents.ids)
        choices = list_choices(documents)
        costs: dict[str, float | None] = {}
        best = np.inf
        for leaves in choices:
            if (name in LISTS or name == "scann") and leaves / documents >= best:
                break
            total = 0.0
            for base, trained, questions in self._settings:
                view = base if name == "faiss_ivf" else trained
                total += self._cost(view, name, leaves, questions, best * len(self._settings) - total)
                if not np.isfinite(total):
                    break
            cost = total / len(self._settings)
            best = min(best, cost)
            costs[str(leaves)] = cost if np.isfinite(cost) else None
            say(f"{self.name}: {name} with {leaves} leaves costs {cost:.4f}")
        return costs

    def _cost(self, view: View, name: str, leaves: int, questions: Questions, most: float) -> float:
        """Cost for 95% of exact R@100; infinite where it is never reached or more than so much."""
        system = build(view, name, leaves, questions)

        def points() -> Iterator[Point]:
            for row in system.walk():
                point = row.point()
                yield point
                if point.cost_mean > most:
                    return

        cost = reach(points(), "R@100", ENOUGH * float(system.exact_Q.mean()))
        return cost if np.isfinite(cost) and cost <= most else np.inf

    @property
    def tables(self) -> dict[str, dict[str, list[Measurement]]]:
        """Seeds of each system of the main table, and of those of equal leaf counts."""
        shipped = self.spec.leaves(self.choices["documents"])
        equal = 1 << (shipped - 1).bit_length() - 1
        """The power of two that is at most as many leaves."""
        untuned = {"hnsw": 0, "untaught": shipped, "learned_ivf": shipped}
        main = {name: self.choices[name] for name in self.tuned} | untuned

        def seeds(system: str, leaves: int, most: int = BESIDE_SEEDS) -> list[Measurement]:
            return [Measurement(system, leaves, seed) for seed in range(min(most, self.seeds))]

        return {
            "main": {name: seeds(name, leaves, self.seeds) for name, leaves in main.items()},
            "equal": {name: seeds(name, equal) for name in EQUAL},
        }

    @property
    def measurements(self) -> list[Measurement]:
        """All that the page shows, a seed's together."""
        runs = [run for table in self.tables.values() for seeds in table.values() for run in seeds]
        return sorted(dict.fromkeys(runs), key=lambda run: run.seed)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to measure."""
        path = self.folder / "choices.json"
        chosen = path.is_file() and set(files.read_json(path)["costs"]) >= set(self.tuned)
        return chosen and all(self._path(run).is_file() for run in self.measurements)

    def measure(self) -> None:
        """Measure all that is left."""
        for run in self.measurements:
            path = self._path(run)
            if not path.is_file():
                began = time.monotonic()
                view = self.base(run.seed) if run.system == "faiss_ivf" else self.view(run.seed)
                cache.keep(path, columns(build(view, run.system, run.leaves, self.final)))
                say(f"{self.name}: {path.name} in {time.monotonic() - began:.0f} s")

    def _path(self, run: Measurement) -> Path:
        return self.folder / self.split / f"{run.system}-{run.leaves}-{run.seed}.npz"

    def results(self) -> Results:
        """Results that the page shows."""
        tables = {
            kind: {name: self._outcome(runs) for name, runs in table.items()} for kind, table in self.tables.items()
        }
        return Results(self.name, self.choices["documents"], self.seeds, self.new, **tables)

    def _outcome(self, runs: Sequence[Measurement]) -> Outcome:
        """The mean over seeds, and each seed's balance, nothing for what has no leaves."""
        curves, balances = [], []
        for run in runs:
            with np.load(self._path(run)) as saved:
                curves.append(Curve.read(saved))
                balances += [balance(saved["sizes"])] if len(saved["sizes"]) else []
        return Outcome(runs[0].leaves, len(runs), mean_curve(curves), balances)

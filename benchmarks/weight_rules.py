"""What trainings find on folds, alone and fused with BM25, and what rules choose for BM25's weight.

Shapes: W weights, Q queries of a fold, A queries of all folds, D draws of dev queries, N queries of a draw.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.fusion import NDCG, RECALL, Listed
from benchmarks.statistics import paired
from benchmarks.tables import table
from rayhier.arrays import Bools, Ints, Values

WEIGHTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)
FIXED = (0.1, 0.25)
"""Weights that the table of trainings shows beside the one that the other folds choose."""
SIZES, DRAWS = (20, 70, 300, 1000), 100
"""Dev queries that choose a weight, and how often so many are drawn from the other folds."""
PRIORS, PULLS = (0.1, 0.15, 0.2), (0.2, 0.25, 0.3)
"""Weights near which a rule stays, and from which a penalty grows."""
STRENGTH = 2.0
"""Of this penalty, in queries."""
ZERO = 0.05
"""Added to weights before their logarithm is taken."""
CONSTANTS = (0.1, 0.15, 0.2, 0.25, 0.3)
MULTIPLES: dict[str, tuple[float, ...]] = {
    "weight": WEIGHTS,
    "deviation of the query's hundred": (0, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16),
    "range of the query's hundred": (0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 3),
    "mean deviation of the model": (0, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16),
}
"""What BM25 is multiplied by, and the multiples of it that are tried."""
Curve = dict[str, Values]
"""Measure -> values [w, q] of queries at weights."""


@dataclass(frozen=True)
class Measured:
    """A collection's trainings, measured on folds."""

    about: str
    listed: Mapping[str, Sequence[Sequence[Listed]]]
    """Name of a training -> fold -> seed -> what its vectors and BM25 list."""
    new_A: Bools
    """Queries with new answers."""
    family_A: Ints
    """The family of each query."""
    part_A: Ints
    """The part of each query: its fold, or of a single fold one of two halves of the families."""

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """Training -> measure -> values [w, a] at the weights, means of seeds."""
        return {name: self.curve(name, "weight") for name in self.listed}

    def curve(self, name: str, unit: str, seeds: int | None = None) -> Curve:
        """Measure a training at the multiples of a unit: values [w, a], means of all seeds or of the first."""
        seeds = seeds or len(self.listed[name][0])
        return {
            measure: np.mean([self._at(name, seed, unit)[measure] for seed in range(seeds)], axis=0)
            for measure in (NDCG, RECALL)
        }

    def _at(self, name: str, seed: int, unit: str) -> Curve:
        folds = [seeds[seed] for seeds in self.listed[name]]
        model = float(np.mean(np.concatenate([fold.spread_Q for fold in folds])))
        scale: dict[str, Callable[[Listed], Values | float]] = {
            "weight": lambda _: 1.0,
            "deviation of the query's hundred": lambda fold: fold.spread_Q.astype(np.float64),
            "range of the query's hundred": lambda fold: fold.range_Q.astype(np.float64),
            "mean deviation of the model": lambda _: model,
        }
        at = [[fold.values(multiple * scale[unit](fold)) for fold in folds] for multiple in MULTIPLES[unit]]
        return {
            measure: np.stack([np.concatenate([values[measure] for values in row]) for row in at])
            for measure in (NDCG, RECALL)
        }

    def bm25(self) -> dict[str, Values]:
        """Measure BM25 alone: values [a]."""
        folds = [seeds[0].bm25() for seeds in next(iter(self.listed.values()))]
        return {measure: np.concatenate([values[measure] for values in folds]) for measure in (NDCG, RECALL)}


def chosen(value_WA: Values, part_A: Ints) -> Ints:
    """Choose for each query the best weight [a], by number, on the queries of all other parts."""
    return np.asarray([value_WA[:, part_A != part].mean(axis=1).argmax() for part in range(part_A.max() + 1)])[part_A]


def pages(collections: Sequence[Measured], control: str | None) -> list[str]:
    """Tables of trainings of one collection told from a control, or without one of rules for the weight over all."""
    if control is None:
        return [*rules(collections), *units(collections)]
    (collection,) = collections
    lines = [f"## {collection.about}", ""]
    groups = {"": np.ones(len(collection.new_A), dtype=bool)}
    groups |= {", new answers": collection.new_A} if not collection.new_A.all() else {}
    for group, in_A in groups.items():
        lines += [f"### Trainings{group} ({in_A.sum():,} queries)", "", *trainings(collection, in_A, control), ""]
    return [*lines, *curves(collection), "", *rules(collections), *units(collections)]


def shown(value_A: Values) -> str:
    """A mean in percent."""
    return f"{100 * value_A.mean():.1f}"


def trainings(collection: Measured, in_A: Bools, control: str) -> list[str]:
    """A table of trainings over some queries: by vectors, at the weight that other folds choose, at a fixed weight."""
    picked: dict[str, dict[str, list[Values]]] = {}
    told = {}
    for name, curve in collection.curves.items():
        best_A = chosen(curve[NDCG], collection.part_A)
        told[name] = "-".join(dict.fromkeys(f"{WEIGHTS[best]:g}" for best in (best_A.min(), best_A.max())))
        all_A = np.arange(len(best_A))
        picked[name] = {
            measure: [value_WA[0], value_WA[best_A, all_A], *(value_WA[WEIGHTS.index(weight)] for weight in FIXED)]
            for measure, value_WA in curve.items()
        }
    places = ["vectors", "with it", *(f"at {weight:g}" for weight in FIXED)]
    head = ["", places[0], "weight", *places[1:]]
    for place in places:
        head += [f"{place}: {NDCG} over {control}", RECALL]
    bm25 = collection.bm25()
    rows = [["BM25", f"{shown(bm25[NDCG][in_A])}/{shown(bm25[RECALL][in_A])}", *[""] * (len(head) - 2)]]
    for name, values in picked.items():
        cells = [f"{shown(values[NDCG][at][in_A])}/{shown(values[RECALL][at][in_A])}" for at in range(len(places))]
        over = [
            paired(values[measure][at][in_A], picked[control][measure][at][in_A], collection.family_A[in_A]).shown
            if control in picked and name != control
            else ""
            for at in range(len(places))
            for measure in (NDCG, RECALL)
        ]
        rows.append([name, cells[0], told[name], *cells[1:], *over])
    return table(head, rows)


def curves(collection: Measured) -> list[str]:
    """A table of every weight."""
    rows = [
        [name, *(f"{shown(n_A)}/{shown(r_A)}" for n_A, r_A in zip(curve[NDCG], curve[RECALL], strict=True))]
        for name, curve in collection.curves.items()
    ]
    return ["### Weights", "", *table(["", *(f"{weight:g}" for weight in WEIGHTS)], rows)]


CRITERIA: dict[str, Callable[[Curve], Values]] = {
    NDCG: lambda curve: curve[NDCG],
    "mean of both": lambda curve: (curve[NDCG] + curve[RECALL]) / 2,
}


def drawn(value_WA: Values, size: int, generator: np.random.Generator) -> Values:
    """Draw dev queries many times: their values [w, d, n]."""
    row_DN = np.stack([generator.permutation(value_WA.shape[1])[:size] for _ in range(DRAWS)])
    return value_WA[:, row_DN]


def argmax(value_WDN: Values) -> Ints:
    """Choose the best weight [d] of each draw."""
    return np.asarray(value_WDN.mean(axis=2).argmax(axis=0))


def near_prior(value_WDN: Values, prior: float) -> Ints:
    """Choose the weight [d] nearest to a prior among those not behind the best by more than a standard error.

    The error is that of the paired difference.
    """
    best_D = argmax(value_WDN)
    behind_WDN = value_WDN[best_D, np.arange(len(best_D))] - value_WDN
    error_WD = behind_WDN.std(axis=2) / behind_WDN.shape[2] ** 0.5
    far_WD = np.where(behind_WDN.mean(axis=2) <= error_WD, np.abs(np.array(WEIGHTS) - prior)[:, None], np.inf)
    return np.asarray(far_WD.argmin(axis=0))


def penalised(value_WDN: Values, prior: float, strength: float) -> Ints:
    """Choose the best weight [d] by the sum over queries, less strength · log²((weight + .05) / (prior + .05)).

    The more queries there are, the less the prior says.
    """
    far_W = np.log((np.array(WEIGHTS) + ZERO) / (prior + ZERO)) ** 2
    return np.asarray((value_WDN.sum(axis=2) - strength * far_W[:, None]).argmax(axis=0))


@dataclass(frozen=True)
class Outcome:
    """What a rule finds with one model, in points."""

    loss: float
    """Points of nDCG@10 below the weight that is best on all held-out queries."""
    gain: float
    """Points of nDCG@10 above the vectors alone, on average over draws."""
    bad: float
    """The same in one draw of twenty."""
    recall: float
    """Points of R@100 above the vectors alone."""


def outcome(curve: Curve, part_A: Ints, rule: Callable[[Values], Ints], value_WA: Values, size: int) -> Outcome:
    """Measure a rule on each part, which reads `size` queries of the other parts, drawn many times, by `value_WA`."""
    mean_W = curve[NDCG].mean(axis=1)
    mean = dict.fromkeys((NDCG, RECALL), 0.0)
    gains = []
    for part in np.unique(part_A):
        in_A = part_A == part
        pick_D = rule(drawn(value_WA[:, ~in_A], size, np.random.default_rng(size)))
        gains.append(mean_W[pick_D] - mean_W[0])
        for measure, measured_WA in curve.items():
            mean[measure] += float(in_A.mean() * measured_WA[:, in_A].mean(axis=1)[pick_D].mean())
    return Outcome(
        100 * float(mean_W.max() - mean[NDCG]),
        100 * float(mean[NDCG] - mean_W[0]),
        100 * float(np.percentile(np.concatenate(gains), 5)),
        100 * float(mean[RECALL] - curve[RECALL][0].mean()),
    )


def constant(weight: float) -> Callable[[Values], Ints]:
    """Make the rule that chooses one weight, whatever it reads."""
    return lambda value_WDN: np.full(value_WDN.shape[1], WEIGHTS.index(weight))


def toward(prior: float) -> Callable[[Values], Ints]:
    """Make the rule of `near_prior`."""
    return lambda value_WDN: near_prior(value_WDN, prior)


def pulled(prior: float, strength: float) -> Callable[[Values], Ints]:
    """Make the rule of `penalised`."""
    return lambda value_WDN: penalised(value_WDN, prior, strength)


def outcomes(curve: Curve, part_A: Ints) -> dict[str, Outcome]:
    """Measure all rules with one model, by their names."""
    oracle = WEIGHTS[int(curve[NDCG].mean(axis=1).argmax())]
    none = {"oracle": constant(oracle), **{f"fixed {weight:g}": constant(weight) for weight in CONSTANTS}}
    read = {"argmax": argmax, **{f"near {prior:g}": toward(prior) for prior in PRIORS}}
    read |= {f"penalty from {prior:g}": pulled(prior, STRENGTH) for prior in PULLS}
    by_rule = {name: outcome(curve, part_A, rule, curve[NDCG], 1) for name, rule in none.items()}
    least = min(int((part_A != part).sum()) for part in np.unique(part_A))
    for criterion, value in CRITERIA.items():
        for size in (size for size in SIZES if size <= least):
            for name, rule in read.items():
                told = f"{name}: {size} queries, {criterion}"
                by_rule[told] = outcome(curve, part_A, rule, value(curve), size)
    return by_rule


def rules(collections: Sequence[Measured]) -> list[str]:
    """A table of rules for the weight, over all models of some collections; one seed."""
    by_rule: dict[str, list[Outcome]] = {}
    for collection in collections:
        for training in collection.listed:
            for name, result in outcomes(collection.curve(training, "weight", 1), collection.part_A).items():
                by_rule.setdefault(name, []).append(result)
    rows = [
        [
            name,
            str(len(models)),
            f"{np.mean([model.loss for model in models]):.2f}",
            f"{max(model.loss for model in models):.2f}",
            f"{min(model.gain for model in models):+.2f}",
            f"{min(model.bad for model in models):+.2f}",
            f"{np.mean([model.recall for model in models]):+.2f}",
            f"{min(model.recall for model in models):+.2f}",
        ]
        for name, models in by_rule.items()
    ]
    head = ["rule", "models", "loss to oracle", "largest", "least gain over vectors", "in 1 draw of 20"]
    return ["### Rules for the weight", "", *table([*head, f"{RECALL} gain", "least"], rows), ""]


def units(collections: Sequence[Measured]) -> list[str]:
    """A table of units of BM25, each with the multiple that is best for all models; and each model's own best."""
    models = [(collection, name) for collection in collections for name in collection.listed]
    mean = {
        unit: [100 * collection.curve(name, unit, 1)[NDCG].mean(axis=1) for collection, name in models]
        for unit in MULTIPLES
    }
    top = np.max([[curve_W.max() for curve_W in mean[unit]] for unit in MULTIPLES], axis=0)
    rows, best = [], []
    for unit, multiples in MULTIPLES.items():
        loss_MW = top[:, None] - np.stack(mean[unit])
        gain_MW = np.stack(mean[unit]) - np.stack(mean[unit])[:, :1]
        for told, at in (
            ("least mean loss", loss_MW.mean(axis=0).argmin()),
            ("least largest", loss_MW.max(axis=0).argmin()),
        ):
            cells = [f"{loss_MW[:, at].mean():.2f}", f"{loss_MW[:, at].max():.2f}", f"{gain_MW[:, at].min():+.2f}"]
            rows.append([unit, told, f"{multiples[at]:g}", *cells, f"{loss_MW.min(axis=1).mean():.2f}"])
        best.append([unit, *(f"{multiples[at]:g}" for at in loss_MW.argmin(axis=1))])
    head = [
        "unit of BM25",
        "by",
        "multiple",
        "mean loss to the best of all",
        "largest",
        "least gain",
        "own multiples: loss",
    ]
    labels = [f"{collection.about.split(',')[0]}: {name}" for collection, name in models]
    deviations = [
        f"{np.mean(np.concatenate([seeds[0].spread_Q for seeds in collection.listed[name]])):.4f}"
        for collection, name in models
    ]
    turned = zip(labels, *(row[1:] for row in best), deviations, strict=True)
    return [
        *["### A weight for all models", "", *table(head, rows), "", "Best multiples of each model:", ""],
        *table(["model", *MULTIPLES, "mean deviation"], turned),
    ]

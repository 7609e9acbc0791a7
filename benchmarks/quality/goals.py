"""The goals of docs/quality.md: each one's value and interval, what was asked, met or missed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.goals import verdict
from benchmarks.statistics import (
    Curve,
    Estimate,
    difference,
    estimate,
    geometric,
    mean_known,
    ratio,
    recall_at,
    sample,
)
from benchmarks.tables import UNKNOWN, table
from rayhier.arrays import Bools, Values

Cells = tuple[str, str, str, str, str]
"""What is asked, the value, its interval, what it should be, and a word for what came of it."""
LEVELS = (0.9, 0.95, 0.98)
SUPERVISED = ("scifact", "acl_title2abs", "oewn_examples")
BY_COST = ("acl_title2abs", "oewn_examples")
SHAPES_AT = 0.1
SHIPPED, BY_RULE = "learned_ivf", "learned_ivf@dev"
IVF, SPILL = "faiss_ivf_same_encoder", "faiss_ivf_spill"


@dataclass(frozen=True)
class Outcome:
    """Result of one system: its leaves (0: none), and the mean over seeds."""

    leaves: int
    seeds: int
    curve: Curve
    balances: list[dict[str, float]]


@dataclass(frozen=True)
class Results:
    """What the systems come to on a collection."""

    name: str
    documents: int
    seeds: int
    new_Q: Bools
    """Whether a query has new answers."""
    main: dict[str, Outcome]
    equal: dict[str, Outcome]
    shapes: dict[str, Outcome]

    @property
    def asked_anew(self) -> dict[str, Outcome]:
        """Systems of the main table, asked the queries with new answers alone; none where all or no answers are new."""
        if self.new_Q.all() or not self.new_Q.any():
            return {}
        return {name: replace(one, curve=one.curve.of(self.new_Q)) for name, one in self.main.items()}

    @property
    def queries(self) -> int:
        """How many queries are asked."""
        return len(self.main[SHIPPED].curve.exact_Q)


def goals(results: Sequence[Results]) -> list[str]:
    """Lines of every goal: measured value, interval, required value, met or missed."""
    supervised = {one.name: one.main for one in results if one.name in SUPERVISED}
    whole = "" if len(supervised) == len(SUPERVISED) else " The pool is incomplete, and so is every verdict on it."
    about = [
        f"Pooled over {', '.join(supervised) or 'nothing'}.{whole} `learned_ivf` is as shipped; `learned_ivf@dev`",
        "chose its leaves by the controls' own rule and range. Neither more leaves nor the screen: the rows *beside*.",
        "",
    ]
    found: list[Cells] = []
    if supervised:
        for control, most, below in ((IVF, 0.5, 0.67), (SPILL, 0.85, 1.0)):
            found += pooled_ratios(supervised, SHIPPED, control, most, below)
            found += pooled_ratios(supervised, BY_RULE, control, most, below)
        for name in BY_COST:
            for control in (IVF, SPILL) if name in supervised else ():
                found += cost_ratios(name, supervised[name], control)
        for system in (SHIPPED, BY_RULE):
            asked = {0.01: 5.0, 0.02: 5.0, 0.05: 3.0, 0.1: 1.5}
            found += pooled_differences("2", supervised, system, IVF, asked)
        for system in (SHIPPED, BY_RULE):
            for control in (IVF, "scann"):
                found += pooled_differences("3", supervised, system, control, {0.05: 3.0})
        found += encoders(supervised)
        found += learned([one for one in results if one.name in SUPERVISED])
    for one in results:
        if one.name == "cranfield":
            value = estimate(ratio(one.main[SHIPPED].curve, one.main["faiss_ivf"].curve, [0.95])[:, 0])
            found.append(
                goal("6: cranfield, visited for 95%, of `faiss_ivf`", value, "at most 0.7", value.value <= 0.7)
            )
        found += shape_goal(one)
    return [*about, *table(["", "value", "95% interval", "asked", ""], found)]


def pooled_ratios(
    supervised: Mapping[str, dict[str, Outcome]], system: str, control: str, most: float, below: float
) -> list[Cells]:
    """Goal 1: documents visited for each level and for their mean, over a control's."""
    each = [ratio(main[system].curve, main[control].curve, LEVELS) for main in supervised.values()]
    pooled_RL = geometric(each)
    title, asked = f"1: `{system}`, visited for {{}}, of `{control}`", f"at most {most}, interval below {below:g}"
    found = ratio_rows(title, pooled_RL, asked, lambda value: value.value <= most and value.high < below)
    for name, ratio_RL in zip(supervised, each, strict=True):
        found += ratio_rows(f"  {name}, {{}}", ratio_RL)[:-1]
    return found


def ratio_rows(
    title: str, ratio_RL: Values, asked: str = "", met: Callable[[Estimate], bool] = lambda _: True
) -> list[Cells]:
    """Rows of the ratios of each level, and of their geometric mean; {} in the title is the level."""
    each = {f"{level:.0%}": ratio_RL[:, place] for place, level in enumerate(LEVELS)}
    values = {level: estimate(value_R) for level, value_R in each.items()}
    values["all three (mean)"] = estimate(geometric(list(ratio_RL.T)))
    return [goal(title.format(level), value, asked, met(value)) for level, value in values.items()]


def cost_ratios(name: str, main: dict[str, Outcome], control: str) -> list[Cells]:
    """Goal 1, by total cost, on one collection."""
    ratio_RL = ratio(main[SHIPPED].curve, main[control].curve, LEVELS, "cost")
    return ratio_rows(
        f"1: {name}, cost for {{}}, of `{control}`", ratio_RL, "at most 0.7", lambda own: own.value <= 0.7
    )


def pooled_differences(
    number: str,
    supervised: Mapping[str, dict[str, Outcome]],
    system: str,
    control: str,
    asked: Mapping[float, float],
) -> list[Cells]:
    """Goals 2 and 3: points of R@100 more than a control at shares visited."""
    mains = {name: main for name, main in supervised.items() if control in main}
    if not mains:
        return [(f"{number}: `{control}`", UNKNOWN, "", "", verdict(None))]
    each = {
        name: 100 * difference(main[system].curve, main[control].curve, list(asked)) for name, main in mains.items()
    }
    pooled_RS = mean_known(list(each.values()))
    found: list[Cells] = []
    for place, (share, least) in enumerate(asked.items()):
        title = f"{number}: `{system}`, R@100 at {share:.0%} visited over `{control}`, points"
        known = {name: estimate(one[:, place]) for name, one in each.items() if not np.isnan(one[0, place])}
        if not known:
            found.append((title, UNKNOWN, "", f"at least +{least:g}", "no curve begins there"))
            continue
        value = estimate(pooled_RS[:, place])
        met = value.value >= least and all(one.high >= 0 for one in known.values())
        title += "" if len(known) == len(each) else f" ({', '.join(known)} alone)"
        found.append(goal(title, value, f"at least +{least:g}", met))
        found += [goal(f"  {name}", one, "not wholly below 0", one.high >= 0) for name, one in known.items()]
    return found


def encoders(supervised: Mapping[str, dict[str, Outcome]]) -> list[Cells]:
    """Exact R@100 of the encoders trained with an index less that of contrast alone."""
    found: list[Cells] = []
    for name, main in supervised.items():
        for system in (name for name in ("ehi_warm", "ehi_cold") if name in main):
            contrast, own = main[SHIPPED].curve.exact_Q, main[system].curve.exact_Q
            points = 100 * (own.mean() - contrast.mean())
            title = f"control: {name}, exact R@100 of `{system}` over contrast, points"
            found.append((title, f"{points:+.1f}", "", "", ""))
    return found


def learned(results: Sequence[Results]) -> list[Cells]:
    """Gain by teaching alone: against the untaught router, and against controls with as many leaves."""
    pairs = {"`untaught`": [(one.main[SHIPPED], one.main["untaught"]) for one in results]}
    for control in (IVF, SPILL):
        pairs[f"`{control}`, equal leaves"] = [(one.equal[SHIPPED], one.equal[control]) for one in results]
    found: list[Cells] = []
    for title, own in pairs.items():
        pooled_RL = geometric([ratio(ours.curve, theirs.curve, LEVELS) for ours, theirs in own])
        found += ratio_rows(f"beside: visited for {{}}, of {title}", pooled_RL)
    return found


def shape_goal(one: Results) -> list[Cells]:
    """Goal 4: trees of equal leaf counts, R@100 at 10% visited."""
    if not one.shapes:
        return []
    at = {shape: at_shares(outcome, [SHAPES_AT])[0] for shape, outcome in one.shapes.items()}
    width = 100 * (max(at.values()) - min(at.values()))
    title = f"4: {one.name}, R@100 at 10% visited of {', '.join(at)}, widest difference, points"
    return [(title, f"{width:.1f}", "", "at most 2", verdict(width <= 2))]


def at_shares(outcome: Outcome, shares: Sequence[float], axis: str = "visited") -> Values:
    """R@100 [s] at shares visited, or at costs."""
    curve = outcome.curve
    return np.asarray(recall_at(curve, sample(len(curve.exact_Q)), shares, axis)[0])


def goal(title: str, value: Estimate, asked: str = "", met: bool | None = None) -> Cells:
    """A row of the goals' table; without `asked` a value for comparison."""
    indent = "&nbsp;&nbsp;" if title.startswith("  ") else ""
    interval = f"{value.low:.2f} to {value.high:.2f}"
    return indent + title.strip(), f"{value.value:.2f}", interval, asked, verdict(met) if asked else ""

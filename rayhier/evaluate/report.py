"""report.json: the results of an evaluation, as means over seeds and for each seed."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from rayhier.dataset.measures import means
from rayhier.evaluate.curve import Point
from rayhier.evaluate.evaluation import Evaluation, SeedResult
from rayhier.evaluate.significance import Difference, QueryGroup, differences, groups
from rayhier.spec import JobSpec
from rayhier.spec.filter import as_json
from rayhier.storage import files
from rayhier.storage.paths import Location

NAME = "report.json"
DIGITS = 6
TRAINED = {"encoder", "joint"}
"""Phases of training that change the encoder."""
ENCODERS = ("exact", "exact_same_encoder")
"""Systems that show an encoder alone: exact search, base and trained."""


class _Row(BaseModel):
    """A row whose further keys are measures (`nDCG@10`, …)."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, float]

    @property
    def measures(self) -> dict[str, float]:
        """Value of each measure."""
        return self.__pydantic_extra__


class SystemRow(_Row):
    """Measures of one system: the router as the spec searches, a control at its first point that visits as much."""

    visited: float
    """Distinct documents scored, as a fraction of the corpus."""
    beam: float | None = None
    """Most leaves visited, for HNSW efSearch; in a search by a level the results on the shortlist."""
    leaves: float | None = None
    """Mean number of leaves searched for a query; absent, like `beam`, for a system without a curve."""
    calls: float | None = None
    """Mean number of documents that a cross-encoder read for a query; absent where nothing is re-ranked."""
    ms: float | None = None
    """Milliseconds of one process for a query, re-ranking included; absent where nothing is re-ranked."""


class CurveRow(_Row):
    """One measured point of a curve; visited and cost are fractions of the corpus."""

    beam: float
    visited_mean: float
    visited_p95: float
    cost_mean: float
    """Rows scanned plus dot products of routing."""
    leaves_mean: float

    @property
    def point(self) -> Point:
        """Return the point without the measures of each query."""
        return Point(
            int(self.beam), self.visited_mean, self.visited_p95, self.cost_mean, self.leaves_mean, self.measures
        )


class SeedRow(CurveRow):
    """A point of one seed's curve."""

    seed: int


class MeanRow(CurveRow):
    """A point of a curve: means over seeds, and the point of each seed."""

    per_seed: list[SeedRow]


class Balance(BaseModel):
    """How evenly documents lie in leaves."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    leaves: float
    empty: float
    imbalance: float


class SeedBalance(Balance):
    """How evenly the documents lie in the leaves of the index of one seed."""

    seed: int


class MeanBalance(Balance):
    """Balance of leaves: means over seeds, and the balance of each seed."""

    per_seed: list[SeedBalance]


class GroupRow(BaseModel):
    """Exact search with each encoder, over one group of queries."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    queries: int
    """Number of queries."""
    systems: dict[str, dict[str, float]]
    """Measures of `exact` (base encoder) and `exact_same_encoder` (trained), means over queries and seeds."""


class Report(BaseModel):
    """Results of an evaluation, as report.json holds them."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    router: str
    """Name of the router's system, which the controls are compared with."""
    documents: int
    """Documents that were searched: all, or those that match the filter."""
    queries: int
    filter: dict[str, Any] | None = None
    """Filter of the documents that were searched; absent where all were, like the next two."""
    corpus: int | None = None
    """Documents of the corpus, those too that no filter lets through."""
    left_out: int | None = None
    """Judged queries none of whose answers matches the filter, which were not measured."""
    systems: dict[str, SystemRow]
    encoders: dict[QueryGroup, GroupRow]
    """Exact search with both encoders, over all queries and over those with new answers, where these are some of them.

    Empty where one of the two was not measured."""
    curves: dict[str, list[MeanRow]]
    balance: MeanBalance
    significance: list[Difference]
    lists: dict[str, int]
    """Number of lists, for each control that has lists."""
    level: int | None = None
    """Level of the tree that the router's system compares all documents by; absent where it visits leaves."""
    seconds: dict[str, float]
    seeds: list[int]

    @classmethod
    def of(cls, spec: JobSpec, evaluation: Evaluation) -> Self:
        """The report of an evaluation."""
        seeds = evaluation.seeds
        balances = [SeedBalance.model_validate({"seed": result.seed, **result.balance}) for result in seeds]
        return cls(
            name=spec.name,
            router=spec.router.type,
            documents=evaluation.documents,
            queries=evaluation.queries,
            filter=None if spec.measured is None else as_json(spec.measured),
            corpus=evaluation.corpus,
            left_out=evaluation.left_out,
            systems={name: _system(name, seeds) for name in seeds[0].runs},
            encoders=_encoders(evaluation),
            curves={name: _curve(name, seeds) for name in seeds[0].curves},
            balance=MeanBalance.model_validate({**_mean([result.balance for result in seeds]), "per_seed": balances}),
            significance=differences(spec, evaluation),
            lists=evaluation.lists,
            level=evaluation.level,
            seconds={name: _round(sum(result.seconds[name] for result in seeds)) for name in seeds[0].seconds},
            seeds=[result.seed for result in seeds],
        )

    @classmethod
    def read(cls, path: Location) -> Self:
        """Read a report from a JSON file."""
        return cls.model_validate(files.read_json(path))

    def write(self, path: Location) -> None:
        """Write the report as JSON."""
        files.write_json(path, self.model_dump(mode="json", exclude_none=True))

    def between(self, system: str, baseline: str, measure: str, queries: QueryGroup = "all") -> list[Difference]:
        """Differences of two systems by a measure, over a group of queries, at every share visited."""
        wanted = (system, baseline, measure, queries)
        return [row for row in self.significance if (row.system, row.baseline, row.measure, row.queries) == wanted]

    def learned(self, measure: str, queries: QueryGroup) -> Difference:
        """Return the change of exact search by training over a group of queries: trained minus base encoder."""
        (difference,) = self.between("exact_same_encoder", "exact", measure, queries)
        return difference

    def points(self, system: str) -> list[Point]:
        """A system's curve."""
        return [row.point for row in self.curves[system]]

    def label(self, system: str) -> str:
        """Return a system's name with its number of leaves or lists."""
        if system == self.router:
            return f"{system} ({self.balance.leaves:.0f} leaves)"
        return f"{system} ({self.lists[system]} lists)" if system in self.lists else system


def _system(name: str, seeds: Sequence[SeedResult]) -> SystemRow:
    rows = []
    for result in seeds:
        if name in result.served_path:
            rows.append(result.served_path[name])
        elif name in result.points:
            point = result.points[name]
            where = {"visited": point.visited_mean, "beam": float(point.beam), "leaves": point.leaves_mean}
            rows.append({**point.measures, **where})
        else:
            rows.append({**result.exact[name], "visited": 1.0})
    return SystemRow.model_validate(_mean(rows))


def _encoders(evaluation: Evaluation) -> dict[QueryGroup, GroupRow]:
    """Return exact search with both encoders over each group of queries; empty where either is missing or untrained."""
    values = [{name: result.values.get(name, {}) for name in ENCODERS} for result in evaluation.seeds]
    if not all(values[0].values()) or not any(TRAINED & result.history.keys() for result in evaluation.seeds):
        return {}
    rows: dict[QueryGroup, GroupRow] = {}
    for group, query_Q in groups(evaluation).items():
        systems = {
            name: _mean([means({measure: value[query_Q] for measure, value in seed[name].items()}) for seed in values])
            for name in ENCODERS
        }
        rows[group] = GroupRow(queries=int(query_Q.sum()), systems=systems)
    return rows


def _curve(name: str, seeds: Sequence[SeedResult]) -> list[MeanRow]:
    curve = []
    for points in zip(*(result.curves[name] for result in seeds), strict=True):
        flat = [point.flat() for point in points]
        per_seed = [
            SeedRow.model_validate({"seed": result.seed, **{key: _round(value) for key, value in row.items()}})
            for result, row in zip(seeds, flat, strict=True)
        ]
        curve.append(MeanRow.model_validate({**_mean(flat), "beam": points[0].beam, "per_seed": per_seed}))
    return curve


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: _round(float(np.mean([row[key] for row in rows]))) for key in rows[0]}


def _round(value: float) -> float:
    return value if isinstance(value, int) else round(float(value), DIGITS)

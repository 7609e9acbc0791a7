"""Define report.json: results of an evaluation, as means over seeds and for each seed."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from rayhier.dataset.families import told_before
from rayhier.dataset.measures import means
from rayhier.evaluate.baselines.untrained import UNTRAINED
from rayhier.evaluate.curve import Point
from rayhier.evaluate.evaluation import Evaluation, SeedResult
from rayhier.evaluate.leaf_load import groups_of
from rayhier.evaluate.significance import Difference, QueryGroup, differences, groups
from rayhier.model.adoption import Adoption
from rayhier.search.rerank import RerankWeight
from rayhier.search.routing.chosen_beam import ChosenBeam
from rayhier.search.routing.query_precision import QueryPrecision
from rayhier.search.words.fusion_weight import FusionWeight
from rayhier.spec import JobSpec
from rayhier.spec.filter import as_json
from rayhier.storage import files
from rayhier.storage.paths import Location

NAME = "report.json"
DIGITS = 6
TRAINED = {"encoder", "joint"}
"""Names of the phases of training that change the encoder."""
ENCODERS = ("exact", "exact_same_encoder")
"""Systems that show only the encoder's quality: exact search by the base encoder, and by the trained encoder."""

NAMES = {
    "exact": "exact search, base encoder",
    "exact_same_encoder": "exact search, the index's encoder",
    "faiss_ivf": "k-means IVF, base encoder",
    "faiss_ivf_same_encoder": "k-means IVF, the index's encoder",
    "faiss_ivf_spill": "k-means IVF, two lists per document",
    "hnsw": "HNSW",
    "scann": "ScaNN",
    "bm25": "BM25",
}
"""System -> its name in tables and plots."""


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, float]

    @property
    def measures(self) -> dict[str, float]:
        return self.__pydantic_extra__


class SystemRow(_Row):
    """Measures of a system: the index with the spec's beam, or a baseline at its first point with as many visits."""

    visited: float
    """Mean number of distinct documents scored for a query, as a share of the corpus."""
    beam: float | None = None
    """Largest number of leaves that a query visits. For HNSW efSearch, and in a search by a level the size of the
    shortlist."""
    leaves: float | None = None
    """Mean number of leaves that a query visits. Absent, like `beam`, for a system without a curve."""
    calls: float | None = None
    """Mean number of documents that the cross-encoder reads per query. Only for the index as it is served."""
    ms: float | None = None
    """Milliseconds of one process per query. Only for the index as it is served."""


class CurveRow(_Row):
    """One measured point of a curve. Visited and cost are shares of the corpus."""

    beam: float
    visited_mean: float
    visited_p95: float
    cost_mean: float
    """Mean number of rows scanned plus dot products of routing, as a share of the corpus."""
    leaves_mean: float
    microseconds: float | None = None
    """Median time of a single query on one core, routing and scan. Absent if it was not measured."""

    @property
    def point(self) -> Point:
        return Point(
            int(self.beam),
            self.visited_mean,
            self.visited_p95,
            self.cost_mean,
            self.leaves_mean,
            self.measures,
            microseconds=self.microseconds,
        )


class SeedRow(CurveRow):
    seed: int


class MeanRow(CurveRow):
    per_seed: list[SeedRow]


class Balance(BaseModel):
    """Number of leaves and of empty leaves, and imbalance of leaf sizes (1: all sizes are equal)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    leaves: float
    empty: float
    imbalance: float


class SeedBalance(Balance):
    seed: int


class MeanBalance(Balance):
    per_seed: list[SeedBalance]


class GroupRow(BaseModel):
    """Measures of exact search with the base encoder and with the trained encoder, over one group of queries."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    queries: int
    systems: dict[str, dict[str, float]]
    """System -> measures, means over queries and seeds: ENCODERS, and with BM25 `exact+bm25` and the index."""


class LeafRow(_Row):
    """A group of leaves: its share of all rows, the queries that visit it first, and their measures."""

    leaves: float
    rows: float
    queries: float


class Report(BaseModel):
    """Results of an evaluation, as report.json contains them."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    router: str
    """Name of the router's system, which the baselines are compared with."""
    documents: int
    """Number of documents that were searched: all, or those that match the filter."""
    whole: int | None = None
    """Number of documents if `documents` counts passages. Absent with a filter."""
    queries: int
    families: int = 0
    """Number of families of queries, which intervals resample."""
    asked_before: dict[str, int] = {}
    """Number of `queries`, and how many train or dev also has, `by_id` or `by_text`. Empty if no query is shared."""
    cut: dict[str, Any] | None = None
    """Number of `families` of train and dev, and what their queries `shared`. Absent if dev was not cut from train."""
    others: dict[str, dict[str, float]] = {}
    """System -> measures over the queries that neither train nor dev has. Empty if no query is left out."""
    filter: dict[str, Any] | None = None
    """Filter that chose the documents to search. Without a filter, `filter`, `corpus` and `left_out` are absent."""
    corpus: int | None = None
    """Number of documents of the corpus, also those that the filter leaves out."""
    left_out: int | None = None
    """Number of judged queries that were not measured because no answer matches the filter."""
    systems: dict[str, SystemRow]
    encoders: dict[QueryGroup, GroupRow]
    """Group of queries -> measures of exact search with both encoders. Empty if an encoder was not measured."""
    curves: dict[str, list[MeanRow]]
    balance: MeanBalance
    leaf_groups: dict[str, LeafRow] = {}
    """`head`, `tail` or `unvisited` -> the group of leaves, with measures of the index."""
    significance: list[Difference]
    lists: dict[str, int]
    """Name of a baseline that cuts the corpus into lists (groups of documents, like leaves) -> its number of lists."""
    level: int | None = None
    """Level of ReTreever's tree by which the index is searched. Absent if a query visits leaves."""
    beams: list[ChosenBeam] = []
    """The beam that queries chose for each seed's index, and the recall of these queries. Empty if none was chosen."""
    weights: list[FusionWeight] = []
    """Weight of BM25 that dev queries chose for each seed's model. Empty if dev queries chose none."""
    besides: list[RerankWeight] = []
    """Weight of the search's score in re-ranking that dev queries chose for each seed's model."""
    precisions: list[QueryPrecision] = []
    """The choice between float32 and int8 for each seed's queries. Exact search and baselines use stored vectors."""
    adoptions: list[Adoption] = []
    """The decision of each seed to keep the trained encoder or not. Seeds without a decision are left out."""
    began_best: bool = False
    """True if the training of every seed kept its first weights, because no epoch was better on dev."""
    seconds: dict[str, float]
    seeds: list[int]

    @classmethod
    def of(cls, spec: JobSpec, evaluation: Evaluation) -> Self:
        seeds = evaluation.seeds
        balances = [SeedBalance.model_validate({"seed": result.seed, **result.balance}) for result in seeds]
        return cls(
            name=spec.name,
            router=spec.router.type,
            documents=evaluation.documents,
            whole=evaluation.whole,
            queries=evaluation.queries,
            families=len(np.unique(evaluation.family_Q)),
            asked_before=evaluation.asked_before,
            cut=evaluation.cut,
            others={name: _mean([result.others[name] for result in seeds]) for name in seeds[0].others},
            filter=None if spec.measured is None else as_json(spec.measured),
            corpus=evaluation.corpus,
            left_out=evaluation.left_out,
            systems={
                name: SystemRow.model_validate(_mean([result.rows[name] for result in seeds])) for name in seeds[0].runs
            },
            encoders=_encoders(evaluation, f"{spec.router.type}+bm25"),
            curves={name: _curve(name, seeds) for name in seeds[0].curves},
            balance=MeanBalance.model_validate({**_mean([result.balance for result in seeds]), "per_seed": balances}),
            leaf_groups=_leaf_groups(spec.router.type, seeds),
            significance=differences(spec, evaluation),
            lists=evaluation.lists,
            level=evaluation.level,
            beams=[result.chosen for result in seeds if result.chosen is not None],
            weights=[result.weight for result in seeds if result.weight is not None],
            besides=[result.beside for result in seeds if result.beside is not None],
            precisions=[result.precision for result in seeds if result.precision is not None],
            adoptions=[result.adoption for result in seeds if result.adoption is not None],
            began_best=all(
                {result.best[phase]["epoch"] for phase in TRAINED & result.best.keys()} == {0} for result in seeds
            ),
            seconds={name: rounded(sum(result.seconds[name] for result in seeds)) for name in seeds[0].seconds},
            seeds=[result.seed for result in seeds],
        )

    @classmethod
    def read(cls, path: Location) -> Self:
        return cls.model_validate(files.read_json(path))

    def write(self, path: Location) -> None:
        files.write_json(path, self.model_dump(mode="json", exclude_none=True))

    def between(self, system: str, baseline: str, measure: str, queries: QueryGroup = "all") -> list[Difference]:
        wanted = (system, baseline, measure, queries)
        return [row for row in self.significance if (row.system, row.baseline, row.measure, row.queries) == wanted]

    @property
    def groups(self) -> list[QueryGroup]:
        """Groups of queries that show what training gains. `new answers`, which show generalisation, come first."""
        return sorted(self.encoders, key=lambda group: group == "all")

    @property
    def trained(self) -> tuple[str, str]:
        """Names of the systems before and after training, with BM25 if searches use BM25."""
        return (UNTRAINED, self.hybrid) if self.hybrid and UNTRAINED in self.systems else ENCODERS

    def learned(self, measure: str, queries: QueryGroup) -> Difference:
        before, after = self.trained
        (difference,) = self.between(after, before, measure, queries)
        return difference

    def is_worse(self, measure: str) -> bool:
        """Return True if the trained encoder finds less than the base encoder, both with BM25 and by vectors alone."""
        by_vectors = self.between(ENCODERS[1], ENCODERS[0], measure)
        return self.learned(measure, "all").difference < 0 and all(row.difference < 0 for row in by_vectors)

    def told_before(self, spec: JobSpec) -> str:
        return f"{told_before(spec.evaluate.split, **self.asked_before)}. `without those` is of the other queries"

    @property
    def keeps_base(self) -> bool:
        return bool(self.adoptions) and not any(adoption.adopted for adoption in self.adoptions)

    @property
    def hybrid(self) -> str | None:
        name = f"{self.router}+bm25"
        return name if name in self.systems else None

    def points(self, system: str) -> list[Point]:
        return [row.point for row in self.curves[system]]

    def label(self, system: str) -> str:
        """Return a system's name for people, with its number of leaves or lists."""
        if system == self.router:
            return f"this index ({self.balance.leaves:.0f} leaves)"
        first, *added = system.split("+")
        named = "this index" if first == self.router else NAMES.get(first, first)
        name = " + ".join([named, *(NAMES.get(part, part) for part in added)])
        return f"{name} ({self.lists[system]} lists)" if system in self.lists else name


def _encoders(evaluation: Evaluation, hybrid: str) -> dict[QueryGroup, GroupRow]:
    seeds = evaluation.seeds
    if not set(ENCODERS) <= seeds[0].values.keys() or not any(TRAINED & result.history.keys() for result in seeds):
        return {}
    names = [name for name in (*ENCODERS, UNTRAINED, hybrid) if name in seeds[0].values]
    values = [result.values for result in seeds]
    rows: dict[QueryGroup, GroupRow] = {}
    for group, query_Q in groups(evaluation).items():
        systems = {
            name: _mean([means({measure: value[query_Q] for measure, value in seed[name].items()}) for seed in values])
            for name in names
        }
        rows[group] = GroupRow(queries=int(query_Q.sum()), systems=systems)
    return rows


def _leaf_groups(router: str, seeds: Sequence[SeedResult]) -> dict[str, LeafRow]:
    told = [result for result in seeds if result.first_Q is not None]
    found = [groups_of(np.asarray(result.first_Q), result.sizes, result.values[router]) for result in told]
    groups = found[0] if found else {}
    return {group: LeafRow.model_validate(_mean([seed[group] for seed in found])) for group in groups}


def _curve(name: str, seeds: Sequence[SeedResult]) -> list[MeanRow]:
    curve = []
    for points in zip(*(result.curves[name] for result in seeds), strict=True):
        flat = [point.flat() for point in points]
        per_seed = [
            SeedRow.model_validate({"seed": result.seed, **{key: rounded(value) for key, value in row.items()}})
            for result, row in zip(seeds, flat, strict=True)
        ]
        curve.append(MeanRow.model_validate({**_mean(flat), "beam": points[0].beam, "per_seed": per_seed}))
    return curve


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    shared = [key for key in rows[0] if all(key in row for row in rows)]
    return {key: rounded(float(np.mean([row[key] for row in rows]))) for key in shared}


def rounded(value: float) -> float:
    return value if isinstance(value, int) else round(float(value), DIGITS)

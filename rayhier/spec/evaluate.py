"""`evaluate:` which measures, on which queries, compared with which baselines."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from rayhier.spec.base import Section

MeasureName = Annotated[str, Field(pattern=r"^(nDCG|RR|AP|P|R|Success)@[1-9][0-9]{0,3}$")]
Fraction = Annotated[float, Field(gt=0, le=1)]
Baseline = Literal[
    "exact",
    "exact_same_encoder",
    "faiss_ivf",
    "faiss_ivf_same_encoder",
    "faiss_ivf_spill",
    "hnsw",
    "scann",
    "bm25",
]
UNFILTERED: tuple[Baseline, ...] = ("hnsw", "scann")
"""Baselines of libraries that know nothing of a filter."""
LISTED: tuple[Baseline, ...] = ("faiss_ivf", "faiss_ivf_same_encoder", "faiss_ivf_spill", "scann")
"""Baselines with lists, or partitions, whose number `lists` sets."""


class EvaluateSpec(Section):
    """How the index of every seed is evaluated."""

    split: Literal["dev", "test"] = "test"
    """Split whose queries and judgements are used."""
    measures: Annotated[tuple[MeasureName, ...], Field(min_length=1)] = ("nDCG@10", "RR@10", "R@10", "R@100")
    """Measures to compute, named as in ir-measures."""
    visited: Annotated[tuple[Fraction, ...], Field(min_length=1)] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
    """Shares of the documents visited at which tables show the measures."""
    baselines: tuple[Baseline, ...] = ("exact", "exact_same_encoder", "faiss_ivf", "faiss_ivf_same_encoder")
    """Other systems measured for comparison; `faiss_ivf_spill` is always added where `index.leaves_per_document` is 2.

    `hnsw`, `scann` and `bm25` hold the whole corpus in one process."""
    lists: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Number of lists of the IVF baselines, and of partitions of `scann`.

    `auto`: the power of two from 16 to N/8 (N documents) that is cheapest on dev; `scann` has as many partitions as
    `faiss_ivf_same_encoder` has lists."""
    filter: dict[str, Any] | None = None
    """A filter over the corpus's declared fields, as in a search: only documents that match are searched and judged, by
    every system, and shares visited are shares of these. Queries without a matching answer are left out."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...], Field(min_length=1, max_length=100)] = (0,)
    """Random seeds; one model is trained and one index built for each."""

    @field_validator("measures", "visited", "baselines", "seeds")
    @classmethod
    def _distinct(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(values)) < len(values):
            raise ValueError("each value once")
        return values

    @property
    def deepest_recall(self) -> str:
        """The recall with the largest cut-off; the first measure where there is no recall."""
        recalls = [measure for measure in self.measures if measure.startswith("R@")]
        return max(recalls, key=lambda measure: int(measure[2:]), default=self.measures[0])

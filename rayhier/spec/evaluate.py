"""`evaluate:` the measures and queries of an evaluation, and the baselines that rayhier is compared with."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from rayhier.spec.base import Section

MeasureName = Annotated[str, Field(pattern=r"^(nDCG|RR|AP|P|R|Success)@[1-9][0-9]{0,3}$")]
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
"""Baselines that cannot apply `evaluate.filter`. A spec with such a baseline and a filter is refused."""
LISTED: tuple[Baseline, ...] = ("faiss_ivf", "faiss_ivf_same_encoder", "faiss_ivf_spill", "scann")
"""Baselines that cut the corpus into `lists` groups of documents (faiss's lists, ScaNN's partitions)."""
VISITED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
"""Shares of the documents that a query visits. The report's tables show the measures at these shares."""


class EvaluateSpec(Section):
    """Queries, measures and baselines by which the index of every seed is evaluated."""

    split: Literal["dev", "test"] = "test"
    """Split whose queries and judgements are used."""
    measures: Annotated[tuple[MeasureName, ...], Field(min_length=1)] = ("nDCG@10", "RR@10", "R@10", "R@100")
    """Measures to compute, with their cut-offs, named as in the package ir-measures: nDCG, RR, AP, P, R or Success."""
    baselines: tuple[Baseline, ...] = ("exact", "exact_same_encoder", "faiss_ivf", "faiss_ivf_same_encoder")
    """Systems to compare with. `exact`, `exact_same_encoder`: exact search by the base encoder and by the trained
    encoder. `faiss_ivf`, `faiss_ivf_same_encoder`: k-means IVF of base vectors and of trained vectors.
    `faiss_ivf_spill`: k-means IVF of trained vectors, with each document in two lists. This baseline is always added
    if `index.leaves_per_document` is 2. If searches use BM25, `bm25` is added, and with `exact` also the base encoder
    with BM25. `hnsw`, `scann` and `bm25` hold the whole corpus in one process."""
    lists: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Number of lists (groups of documents, like leaves) of the IVF baselines, and of partitions of `scann`. `auto`: a
    power of two from 16 to N/8 for N documents, with the lowest cost on dev queries. With `auto`, `scann` gets as many
    partitions as `faiss_ivf_same_encoder` has lists."""
    filter: dict[str, Any] | None = None
    """A filter over the corpus's declared fields, as in a search. `null`: none. All systems then search only documents
    that match, and shares visited are shares of these documents. Queries without a matching answer are left out."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...], Field(min_length=1, max_length=100)] = (0,)
    """Random seeds. One model is trained and one index built for each seed."""

    @field_validator("measures", "baselines", "seeds")
    @classmethod
    def _distinct(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(values)) < len(values):
            raise ValueError("each value once")
        return values

    @property
    def deepest_recall(self) -> str:
        """The recall with the largest cut-off, for instance R@100. The first measure if there is no recall."""
        recalls = [measure for measure in self.measures if measure.startswith("R@")]
        return max(recalls, key=lambda measure: int(measure[2:]), default=self.measures[0])

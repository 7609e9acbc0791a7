"""`evaluate:` what is measured, on which queries, beside which baselines."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from rayhier.spec.section import Section

Measure = Annotated[str, Field(pattern=r"^(nDCG|RR|AP|P|R|Success)@[1-9][0-9]{0,3}$")]
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


class EvaluateSpec(Section):
    """The evaluation of every seed's index."""

    split: Literal["dev", "test"] = "test"
    """Judgements used."""
    measures: Annotated[tuple[Measure, ...], Field(min_length=1)] = ("nDCG@10", "RR@10", "R@10", "R@100")
    """In the names of ir-measures."""
    visited: Annotated[tuple[Fraction, ...], Field(min_length=1)] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
    """Shares of the documents at which tables read the curves."""
    baselines: tuple[Baseline, ...] = ("exact", "exact_same_encoder", "faiss_ivf", "faiss_ivf_same_encoder")
    """Controls measured beside the index; `faiss_ivf_spill` always where `index.leaves_per_document` is 2.

    `hnsw`, `scann` and `bm25` hold the whole corpus in one process."""
    lists: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Lists of the IVF controls, partitions of `scann`.

    `auto`: the power of two from 16 to N/8 that is cheapest on dev; for `scann` what `faiss_ivf_same_encoder` has."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...], Field(min_length=1, max_length=100)] = (0,)
    """One model and one index is trained for each."""

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

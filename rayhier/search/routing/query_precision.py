"""The number format in which queries are encoded: float32, or int8 if dev queries lose little by it."""

from rayhier.embed.onnx import Computed
from rayhier.storage.decision import Decision

MOST_LOST = 0.001
"""Largest loss of the mean measure at which dev queries choose int8."""


class QueryPrecision(Decision):
    """The choice of float32 or int8 for queries, with the measures of the dev queries that chose."""

    file = "query_precision.json"
    queries: int
    measure: str
    """Measure of exact search that compares the formats, such as nDCG@10."""
    measured: dict[Computed, float]
    """Number format of the encoder -> mean of the measure over the dev queries."""

    @property
    def chosen(self) -> Computed:
        """Return int8 if its measure is at most 0.001 lower than that of float32, else float32.

        >>> QueryPrecision(queries=70, measure="nDCG@10", measured={"float32": 0.8, "int8": 0.7991}).chosen
        'int8'
        """
        return "int8" if self.measured["float32"] - self.measured["int8"] <= MOST_LOST else "float32"

"""The weight of a search's score beside a cross-encoder's, chosen for a model; the stage calibrate publishes it."""

from rayhier.storage.decision import Decision


class RerankWeight(Decision):
    """A weight of the search's score, what each weight found for dev queries, and how the two scores are related."""

    file = "rerank.json"
    beside: float
    """Weight of the search's score, which is added to the cross-encoder's."""
    slope: float
    """Mean slope of the cross-encoder's score on the search's, over the documents read for a query; at least 0."""
    queries: int
    """Number of dev queries."""
    depth: int
    """Number of the search's best documents that the cross-encoder read for each."""
    measure: str
    """Measure by which weights were told apart, such as nDCG@10."""
    searched: float
    """Mean of the measure for the search alone."""
    measured: dict[str, float]
    """Weight -> mean of the measure over these queries."""

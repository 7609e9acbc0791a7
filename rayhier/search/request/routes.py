"""Encoded queries with the leaves that they visit, or with their numbers at a level of a tree."""

import time
from dataclasses import dataclass, replace

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.model.encoded import Encoded
from rayhier.search.request.model import Model
from rayhier.search.request.request import Queries
from rayhier.search.segment.level_similarity import FlatQuery


@dataclass(frozen=True)
class Routes:
    """Encoded queries, the leaves that they visit, and the milliseconds that encoding and routing took."""

    encoded: Encoded
    leaves_QB: Ints
    """Leaves [q, β] in the order of visit; -1 where a query visits fewer."""
    log_prob_QB: Floats
    """Log-probabilities [q, β] of the leaves in `leaves_QB`."""
    log_density_QB: Floats | None = None
    """Log densities [q, β] of the leaves (probability of an answer / number of documents), by which they are ordered;
    None where the router does not know the leaves' sizes."""
    flat: FlatQuery | None = None
    """Queries' numbers for a search that compares all documents by a level of a tree, and visits no leaf."""
    encode_ms: float = 0.0
    """Milliseconds that encoding took, for all queries together."""
    route_ms: float = 0.0
    """Milliseconds that routing took, for all queries together."""
    queue_ms: float = 0.0
    """Milliseconds that the queries waited for the encoder."""

    def part(self, rows: slice) -> "Routes":
        """Return the routes of the queries at `rows`; milliseconds stay those of all queries."""
        density_QB = None if self.log_density_QB is None else self.log_density_QB[rows]
        return replace(
            self,
            encoded=self.encoded[rows],
            leaves_QB=self.leaves_QB[rows],
            log_prob_QB=self.log_prob_QB[rows],
            log_density_QB=density_QB,
            flat=None if self.flat is None else self.flat.part(rows),
        )


def find_routes(model: Model, queries: Queries | Encoded, beam: int) -> Routes:
    """Encode queries and route them to `beam` leaves.

    With a beam of 0, queries visit no leaf, and get numbers for a comparison with all documents where the
    model's spec asks for one. InputError where the router reads tokens and queries are vectors.
    """
    began = time.perf_counter()
    encoded = queries if isinstance(queries, Encoded) else _encoded(model, queries)
    routing = time.perf_counter()
    if beam:
        leaves_QB, log_prob_QB = model.route(encoded, beam)
        density_QB, flat = model.densities(leaves_QB, log_prob_QB), None
    else:
        leaves_QB, log_prob_QB = np.zeros((len(encoded), 0), np.int64), np.zeros((len(encoded), 0), np.float32)
        density_QB, flat = None, model.flat_query(encoded)
    times = 1e3 * (routing - began), 1e3 * (time.perf_counter() - routing)
    return Routes(encoded, leaves_QB, log_prob_QB, density_QB, flat, *times)


def _encoded(model: Model, queries: Queries) -> Encoded:
    return Encoded.of(queries) if isinstance(queries, np.ndarray) else model.encode(queries)

"""Make training pairs of a pseudo-query (a title, a span, or the text itself) and the document it comes from."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from rayhier.arrays import Ints
from rayhier.dataset.spans import Spans
from rayhier.embed.spans import SpanDrawer
from rayhier.spec.train import PseudoQueries
from rayhier.train.examples import KnownPositives, of_same_documents
from rayhier.train.tower import TextTower, Tower


class StoredPairs:
    """Pseudo-queries whose vectors are stored. `rows` are the rows of the documents that have pseudo-queries."""

    def __init__(self, drawn: Spans) -> None:
        self.rows, self.begin_D, self.count_D = np.unique(drawn.row_P, return_index=True, return_counts=True)

    def chosen(self, document_X: Ints, generator: np.random.Generator) -> Ints:
        """Draw a pseudo-query for each document row [x]. Returns the pseudo-queries' rows [x] on the side `pseudo`."""
        place_X = np.searchsorted(self.rows, document_X)
        return np.asarray(self.begin_D[place_X] + pick(self.count_D[place_X], generator))


class RedrawnPairs:
    """Pseudo-queries drawn from documents' texts at every use, for a transformer that trains."""

    def __init__(self, drawer: SpanDrawer, documents: pa.Table, drawn: Spans, tower: TextTower) -> None:
        self.drawer, self.documents, self.tower = drawer, documents, tower
        self.rows = np.unique(drawn.row_P)

    def chosen(self, document_X: Ints, generator: np.random.Generator) -> Ints:
        key = str(generator.integers(2**63))
        chosen = self.documents.take(pa.array(document_X))
        ids, titles, texts = (chosen[name].to_pylist() for name in ("doc_id", "title", "text"))
        place, drawn = self.drawer.draw(ids, titles, texts, key)
        self.tower.give("pseudo", drawn)
        begin_X, end_X = (np.searchsorted(place, np.arange(len(document_X)), side) for side in ("left", "right"))
        return np.asarray(begin_X + pick(end_X - begin_X, generator))


class SamePairs:
    """Documents that are also encoded with dropout, as pseudo-queries (Gao et al., "SimCSE", 2021)."""

    def __init__(self, documents: int, tower: TextTower) -> None:
        self.rows, self.tower = np.arange(documents), tower
        tower.texts["pseudo"], tower.noisy = tower.texts["document"], frozenset({"pseudo"})

    def chosen(self, document_X: Ints, generator: np.random.Generator) -> Ints:
        self.tower.noise = int(generator.integers(2**32))
        return document_X


PseudoPairs = StoredPairs | RedrawnPairs | SamePairs


def pick(count_X: Ints, generator: np.random.Generator) -> Ints:
    return np.asarray((generator.random(len(count_X)) * count_X).astype(np.int64))


def own_answers(documents: int, result_N: Ints | None) -> KnownPositives:
    """Index each document, with all its passages, as the answers of its pseudo-queries."""
    query_P, row_P = of_same_documents(np.arange(documents), documents, result_N)
    return KnownPositives(np.unique(query_P * documents + row_P), documents, np.arange(documents))


def pseudo_pairs(
    spec: PseudoQueries, tower: Tower, drawn: Spans | None, documents: Callable[[], pa.Table]
) -> PseudoPairs | None:
    if isinstance(tower, TextTower) and spec.source == "simcse":
        return SamePairs(tower.size("document"), tower)
    if drawn is None or not len(drawn):
        return None
    if not isinstance(tower, TextTower):
        return StoredPairs(drawn)
    return RedrawnPairs(SpanDrawer.of(tower.encoder, spec), documents(), drawn, tower)

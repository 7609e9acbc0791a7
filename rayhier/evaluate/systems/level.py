"""The index itself, searched by a level of ReTreever's tree."""

from rayhier.dataset.ranking import Ranking, merge
from rayhier.evaluate.collection import Collection
from rayhier.evaluate.curve import System
from rayhier.evaluate.part import Part
from rayhier.model.encoded import Encoded
from rayhier.model.retreever import RetreeverRouter
from rayhier.search.comparing import Comparing


def level_system(
    name: str, collection: Collection, router: RetreeverRouter, how: Comparing, queries: Encoded, k: int, listed: int
) -> System:
    """One point: every document is visited. Cost counts the tree, the level's numbers, and scoring `listed` again."""
    dimension, documents = queries.vectors.shape[1], collection.documents
    query = collection.parts.send(how.query(router, queries))

    def rank(count: int) -> Ranking:
        return merge(collection.parts.call(Part.level, query, count), count).finished(k)

    def routing(count: int) -> float:
        # A row that is scored again counts as one product of vectors; by the deepest level it takes another number.
        more = count * (2**router.levels / dimension - 1) if how.again == "level" else 0.0
        return float((router.multiply_adds(1) + documents * 2**how.level) / dimension + more)

    return System(name, documents, [listed], rank, routing)

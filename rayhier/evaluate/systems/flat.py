"""The system that compares all documents by a level of ReTreever's tree, then rescores the best."""

from functools import cache

from rayhier.dataset.ranking import Ranking
from rayhier.evaluate.collection import Collection
from rayhier.evaluate.curve import System
from rayhier.evaluate.part import Part
from rayhier.model.encoded import Encoded
from rayhier.model.retreever import RetreeverRouter
from rayhier.search.level_similarity import LevelSimilarity, Shortlist


def level_system(
    name: str,
    collection: Collection,
    router: RetreeverRouter,
    similarity: LevelSimilarity,
    queries: Encoded,
    k: int,
    listed: int,
) -> System:
    """Make a system with a single point: all documents are visited, and `listed` results are scored again.

    Its cost is that of a search in one process: the tree, the numbers of the level, and the scores of the shortlist,
    which is merged from the shortlists of the parts.
    """
    dimension, documents = queries.vectors.shape[1], collection.matching
    query = collection.parts.send(similarity.query(router, queries))

    @cache
    def rank(results: int) -> Ranking:
        return Shortlist.merge(collection.parts.call(Part.level, query, results), results).finished(k)

    def routing(results: int) -> float:
        # A row that is scored again counts as one product of vectors; by the deepest level it takes another number.
        again = 2**router.levels / dimension - 1 if similarity.again == "level" else 0.0
        level = (router.multiply_adds(1) + documents * 2**similarity.level) / dimension
        return float(level + again * rank(results).scanned_Q.mean())

    return System(name, documents, [listed], rank, routing)

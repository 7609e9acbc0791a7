"""A level finished by vectors: its shortlist ranked again, beside an exact search; and what float16 storage changes."""

from dataclasses import dataclass

import numpy as np

from benchmarks.cache import kept
from benchmarks.retreever.bench import Bench, Row, Setting
from benchmarks.retreever.rows import LEVEL
from rayhier.arrays import Floats, Ints, Values
from rayhier.model.encoded import Encoded
from rayhier.search.flat import flat
from rayhier.search.level import LevelPart, level_of_all, numbers_again
from rayhier.search.level_similarity import LevelQuery, LevelSimilarity
from rayhier.spec.train.retreever import Comparison


@dataclass(frozen=True)
class Shortlist:
    """How a shortlist is made: a row's representations of 64 numbers, compared one way or the other."""

    name: str
    row: Row
    similarity: Comparison
    listed: int


def finished(bench: Bench, one: Shortlist, seed: int) -> dict[str, Values]:
    """Measures [q] of a shortlist that is ranked again by vectors."""
    setting = bench.setting(seed)

    def make() -> dict[str, Values]:
        part, query = shortlisted(bench, one, setting)

        def search(_query_QM: Floats, count: int) -> tuple[Floats, Ints]:
            assert query.again_QX is not None
            _, row_QT = part.best(query.level_QK, one.listed)
            again_QT = part.again(query.again_QX, row_QT)
            order_QK = np.argsort(-again_QT, axis=1, kind="stable")[:, :count]
            return np.take_along_axis(again_QT, order_QK, axis=1), np.take_along_axis(row_QT, order_QK, axis=1)

        return bench.judged(search, query.level_QK)

    key = [one.row.kind, one.row.begin, one.row.rate, one.row.train, one.row.router, one.similarity, one.listed]
    return kept(setting.path("finished", bench.split, *key).with_suffix(".npz"), make)


def shortlisted(bench: Bench, one: Shortlist, setting: Setting) -> tuple[LevelPart, LevelQuery]:
    """Documents and queries by a row's 64 numbers, with vectors that rank again."""
    document_NM, query_QM = setting.examples.document_NM, bench.asked(setting)
    row_N = np.arange(len(document_NM))
    if one.row.kind == "tree":
        router = setting.router(one.row)
        level_similarity = similarity_of(router.representations.offset_L, one.similarity)
        stored_NL, stored_QL = (router.leaves(Encoded.of(x)) for x in (document_NM, query_QM))
        part = LevelPart(
            level_similarity,
            level_of_all(level_similarity, stored_NL),
            row_N,
            numbers_again(level_similarity, document_NM),
        )
        return part, LevelQuery(level_similarity.level_of(stored_QL, level_similarity.level), query_QM)
    trained = setting.trained(one.row)
    place = [LEVEL in own.shape for own in bench.sizes(trained, query_QM[:2])].index(True)
    document_NK, query_QK = (bench.sizes(trained, x)[place] for x in (document_NM, query_QM))
    part = LevelPart(similarity_of(None, "cosine"), document_NK, row_N, lambda rows: document_NM[rows])
    return part, LevelQuery(query_QK, query_QM)


def similarity_of(offset_L: object, similarity: Comparison, level: int = LEVEL.bit_length() - 1) -> LevelSimilarity:
    """How a level is compared and its shortlist ranked again; only the cosine has an offset."""
    has = offset_L is not None and similarity == "cosine"
    return LevelSimilarity(level, similarity, "vectors", offset_L.detach().numpy() if has else None)  # type: ignore[attr-defined]


def stored_values(bench: Bench, row: Row, level: int, seed: int) -> dict[str, Values]:
    """Measures [q] of a level as an index stores it, in float16."""
    setting = bench.setting(seed)

    def make() -> dict[str, Values]:
        router = setting.router(row)
        own = router.representations
        level_similarity = similarity_of(own.offset_L, own.similarity, level)
        stored_NL, stored_QL = (
            router.leaves(Encoded.of(x)) for x in (setting.examples.document_NM, bench.asked(setting))
        )
        return bench.judged(
            flat(level_of_all(level_similarity, stored_NL), own.similarity), level_similarity.level_of(stored_QL, level)
        )

    return kept(setting.path("stored", bench.split, row.train, row.router, level).with_suffix(".npz"), make)

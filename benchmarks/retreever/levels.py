"""Levels: a shortlist finished by vectors, float16 storage, milliseconds of flat searches and of whole questions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from benchmarks.machine import medians
from benchmarks.retreever.bench import Bench, Row, Setting
from benchmarks.retreever.rows import LEVEL
from rayhier.arrays import Floats, Ints, Values
from rayhier.embed.encode import TextEncoder
from rayhier.model.encoded import Encoded
from rayhier.model.retreever import RetreeverRouter, at_level, represent
from rayhier.search.exact import flat
from rayhier.search.flat_scan import FlatPart, level_of_all, numbers_again, stored_part
from rayhier.search.level_similarity import FlatQuery, LevelSimilarity
from rayhier.spec.train.retreever import Comparison

K, BATCH, ROUNDS = 10, 64, 7
"""Results of a search, queries of a batch, and interleaved rounds, of which the median counts."""
FEW, ASKED = 8, 32
"""Queries that are searched alone in a round, and whole questions."""
LISTED = 300
"""Documents of a level's shortlist."""


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
            row_QT, again_QT = again(part, query, one.listed)
            order_QK = np.argsort(-again_QT, axis=1, kind="stable")[:, :count]
            return np.take_along_axis(again_QT, order_QK, axis=1), np.take_along_axis(row_QT, order_QK, axis=1)

        return bench.judged(search, query.query_QK)

    key = [one.row.kind, one.row.begin, one.row.rate, one.row.train, one.row.router, one.similarity, one.listed]
    return setting.kept(make, "finished", bench.split, *key)


def again(part: FlatPart, query: FlatQuery, listed: int) -> tuple[Ints, Floats]:
    """Rows [q, t] of a shortlist, and their scores [q, t] by vectors."""
    assert query.again_QX is not None
    row_QT = part.best(query.query_QK, listed)[1]
    return row_QT, part.again(query.again_QX, row_QT)


def shortlisted(bench: Bench, one: Shortlist, setting: Setting) -> tuple[FlatPart, FlatQuery]:
    """Documents and queries by a row's 64 numbers, with vectors that rank again."""
    document_NM, query_QM = setting.examples.document_NM, bench.asked(setting)
    row_N = np.arange(len(document_NM))
    if one.row.kind == "tree":
        router = setting.router(one.row)
        similarity = similarity_of(router, one.similarity)
        stored_NL, stored_QL = (router.leaves(Encoded.of(x)) for x in (document_NM, query_QM))
        numbers = numbers_again(similarity, document_NM)
        part = FlatPart(similarity, flat(level_of_all(similarity, stored_NL), similarity.comparison), row_N, numbers)
        return part, FlatQuery(similarity.level_of(stored_QL, similarity.level), query_QM)
    trained = setting.trained(one.row)
    place = [LEVEL in own.shape for own in bench.sizes(trained, query_QM[:2])].index(True)
    document_NK, query_QK = (bench.sizes(trained, x)[place] for x in (document_NM, query_QM))
    cosine = similarity_of(None, "cosine")
    part = FlatPart(cosine, flat(document_NK, "cosine"), row_N, lambda rows: document_NM[rows])
    return part, FlatQuery(query_QK, query_QM)


def similarity_of(
    router: RetreeverRouter | None, similarity: Comparison, level: int = LEVEL.bit_length() - 1
) -> LevelSimilarity:
    """How a level is compared and its shortlist ranked again; only the cosine has an offset."""
    offset = router.representations.offset_L if router is not None and similarity == "cosine" else None
    return LevelSimilarity(level, similarity, "vectors", None if offset is None else offset.detach().numpy())


def stored_values(bench: Bench, row: Row, level: int, seed: int) -> dict[str, Values]:
    """Measures [q] of a level as an index stores it, in float16."""
    setting = bench.setting(seed)

    def make() -> dict[str, Values]:
        router = setting.router(row)
        similarity = similarity_of(router, router.representations.similarity, level)
        texts = setting.examples.document_NM, bench.asked(setting)
        stored_NL, stored_QL = (router.leaves(Encoded.of(x)) for x in texts)
        search = flat(level_of_all(similarity, stored_NL), router.representations.similarity)
        return bench.judged(search, similarity.level_of(stored_QL, level))

    return setting.kept(make, "stored", bench.split, row.train, row.router, level)


@dataclass(frozen=True)
class Speeds:
    """Milliseconds a query by the search's name, in batches of 64, and alone; and those of whole questions, alone."""

    documents: int
    batched: Mapping[str, float]
    alone: Mapping[str, float]
    whole: Mapping[str, Mapping[str, float]]
    """Name -> part of a question -> milliseconds."""


def speeds(bench: Bench, row: Row, seed: int = 0) -> Speeds:
    """Time flat searches over a tree's levels and over the encoder's vectors, and whole questions."""
    setting = bench.setting(seed)
    router, document_NM, query_QM = setting.router(row), setting.examples.document_NM, bench.asked(setting)[:BATCH]
    stored_NL, stored_QL = (router.leaves(Encoded.of(x)) for x in (document_NM, query_QM))
    searches: dict[str, tuple[Callable[..., object], Floats]] = {}
    for level in range(1, router.levels + 1):
        own_NK, own_QK = (at_level(x, level) for x in (stored_NL, stored_QL))
        searches[f"L1, {2**level}"] = flat(own_NK, "tv"), own_QK
        if level in (5, 6):
            cosine = [np.asarray(represent(torch.from_numpy(x), "cosine").numpy()) for x in (own_NK, own_QK)]
            searches[f"inner product, {2**level}"] = flat(cosine[0], "cosine"), cosine[1]
    vectors = f"inner product, the encoder's {document_NM.shape[1]}"
    searches[vectors] = flat(document_NM, "cosine"), query_QM
    searches[f"{vectors}, a matrix product"] = partial(product, document_NM), query_QM
    batched = {name: partial(search, x, K) for name, (search, x) in searches.items()}
    single = {name: partial(one_by_one, search, x[:FEW], K) for name, (search, x) in searches.items()}
    return Speeds(
        len(document_NM),
        {name: 1e3 * seconds / BATCH for name, seconds in medians(batched, ROUNDS).items()},
        {name: 1e3 * seconds / FEW for name, seconds in medians(single, ROUNDS).items()},
        questions(bench, row, searches[vectors][0], stored_NL, seed),
    )


def questions(
    bench: Bench, row: Row, exact: Callable[..., object], stored_NL: np.ndarray, seed: int
) -> dict[str, dict[str, float]]:
    """Whole questions, one at a time: encoding the text, the tree, the search, the shortlist."""
    setting, texts = bench.setting(seed), bench.queries.texts[:ASKED]
    router, document_NM, asked_QM = setting.router(row), setting.examples.document_NM, bench.asked(setting)
    spec = bench.collection.spec.encoder.model_copy(update={"precision": "float32"})
    encoder = TextEncoder(bench.collection.model, spec)
    encode = {"encode": lambda: [encoder.encode([text]) for text in texts]}
    vectors = [asked_QM[q : q + 1] for q in range(ASKED)]
    parts: dict[str, dict[str, Callable[[], object]]] = {}
    parts["exact search of vectors"] = {**encode, "search": partial(one_by_one, exact, asked_QM[:ASKED], K)}
    kinds: dict[str, Comparison] = {"L1": "tv", "cosine": "cosine"}
    for name, kind in kinds.items():
        similarity = similarity_of(router, kind, 5)
        part = stored_part(similarity, stored_NL, document_NM, np.arange(len(document_NM)))

        def tree(similarity: LevelSimilarity = similarity) -> list[FlatQuery]:
            return [similarity.query(router, Encoded.of(x)) for x in vectors]

        def search(part: FlatPart = part, queries: Sequence[FlatQuery] = tuple(tree())) -> list[object]:
            return [again(part, query, LISTED) for query in queries]

        parts[f"level 5, {name}, {LISTED} finished by vectors"] = {**encode, "tree": tree, "search": search}
    return {
        name: {part: 1e3 * seconds / ASKED for part, seconds in medians(own, ROUNDS).items()}
        for name, own in parts.items()
    }


def product(document_NM: Floats, query_QM: Floats, count: int) -> object:
    """The best of one matrix product of all queries and documents, which is faster than faiss' own for batches."""
    return torch.topk(torch.from_numpy(query_QM) @ torch.from_numpy(document_NM).T, count, dim=1)


def one_by_one(search: Callable[..., object], query_QK: Floats, count: int) -> list[object]:
    """Search for queries, one after the other."""
    return [search(query_QK[q : q + 1], count) for q in range(len(query_QK))]

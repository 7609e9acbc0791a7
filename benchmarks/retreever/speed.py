"""Milliseconds of flat searches: L1 over levels, inner products over levels and vectors; and of whole questions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.machine import medians
from benchmarks.retreever.bench import Bench, Row
from rayhier.arrays import Floats
from rayhier.embed.encode import TextEncoder
from rayhier.model.encoded import Encoded
from rayhier.model.retreever import at_level, represent
from rayhier.search.flat import flat
from rayhier.search.level import LevelPart, stored_part
from rayhier.search.level_similarity import LevelQuery, LevelSimilarity
from rayhier.spec.train.retreever import Comparison

K, BATCH, ROUNDS = 10, 64, 7
"""Results of a search, queries of a batch, and interleaved rounds, of which the median counts."""
FEW, ASKED = 8, 32
"""Queries that are searched alone in a round, and whole questions."""
LISTED = 300
"""Documents of a level's shortlist."""


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
    single = {name: partial(_one_by_one, search, x[:FEW], K) for name, (search, x) in searches.items()}
    return Speeds(
        len(document_NM),
        {name: 1e3 * seconds / BATCH for name, seconds in medians(batched, ROUNDS).items()},
        {name: 1e3 * seconds / FEW for name, seconds in medians(single, ROUNDS).items()},
        _whole(bench, row, searches[vectors][0], stored_NL, seed),
    )


def _whole(
    bench: Bench, row: Row, exact: Callable[..., object], stored_NL: npt.NDArray[Any], seed: int
) -> dict[str, dict[str, float]]:
    """Whole questions, one at a time: encoding the text, the tree, the search, the shortlist."""
    setting, texts = bench.setting(seed), bench.queries.texts[:ASKED]
    router, document_NM, asked_QM = setting.router(row), setting.examples.document_NM, bench.asked(setting)
    encoder = TextEncoder(
        bench.collection.model, bench.collection.spec.encoder.model_copy(update={"precision": "float32"})
    )
    offset = router.representations.offset_L
    found: dict[str, dict[str, float]] = {}
    encode = {"encode": lambda: [encoder.encode([text]) for text in texts]}
    vectors = [asked_QM[q : q + 1] for q in range(ASKED)]
    found["exact search of vectors"] = _each({**encode, "search": partial(_one_by_one, exact, asked_QM[:ASKED], K)})
    kinds: dict[str, Comparison] = {"L1": "tv", "cosine": "cosine"}
    for name, similarity in kinds.items():
        given = offset.detach().numpy() if offset is not None and similarity == "cosine" else None
        level_similarity = LevelSimilarity(5, similarity, "vectors", given)
        part = stored_part(level_similarity, stored_NL, document_NM, np.arange(len(document_NM)))

        def tree(level_similarity: LevelSimilarity = level_similarity) -> list[LevelQuery]:
            return [level_similarity.query(router, Encoded.of(x)) for x in vectors]

        def search(part: LevelPart = part, queries: Sequence[LevelQuery] = tuple(tree())) -> list[object]:
            return [_twice(part, query) for query in queries]

        found[f"level 5, {name}, {LISTED} finished by vectors"] = _each({**encode, "tree": tree, "search": search})
    return found


def product(document_NM: Floats, query_QM: Floats, count: int) -> object:
    """The best of one matrix product of all queries and documents, which is faster than faiss' own for batches."""
    return torch.topk(torch.from_numpy(query_QM) @ torch.from_numpy(document_NM).T, count, dim=1)


def _twice(part: LevelPart, query: LevelQuery) -> object:
    assert query.again_QX is not None
    return part.again(query.again_QX, part.best(query.level_QK, LISTED)[1])


def _one_by_one(search: Callable[..., object], query_QK: Floats, count: int) -> list[object]:
    return [search(query_QK[q : q + 1], count) for q in range(len(query_QK))]


def _each(parts: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    return {name: 1e3 * seconds / ASKED for name, seconds in medians(parts, ROUNDS).items()}

"""What hybrid search lists first for queries of a fold, and the vectors of the tokens in texts: what MaxSim re-ranks.

The encoder is the shipped contrast training's, trained on the other folds. BM25's weight is what the library chooses on
the fold's dev queries.

Shapes: Q queries, K documents of a list, N texts, M numbers of a vector, T tokens of all texts together.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import cache
from benchmarks.default_training import CONTRAST, VARIANTS, Fold, Study, mask
from benchmarks.fusion import DEPTH, FIRST, NDCG, discounted, listed
from benchmarks.training import encode, train
from rayhier.arrays import Bools, Floats, Ints, Values
from rayhier.dataset.queries import Queries, relevant
from rayhier.search.exact import exact_rows
from rayhier.search.fusion_weight import WEIGHTS, best

RECALL = "R@10"
Arrays = dict[str, npt.NDArray[Any]]
NEAR, NEGATIVES = 20, 2
"""A train query's hard negatives are drawn from so many first documents of its list, and are so many."""


@dataclass(frozen=True)
class Candidates:
    """Queries, the first documents of each by hybrid search, and the judgements of these."""

    queries: Queries
    score_QK: Floats
    """Hybrid scores, the best first; -inf where a query has fewer documents."""
    row_QK: Ints
    """Rows of the documents; -1 where a query has fewer."""
    gain_QK: Ints
    """Grades of the documents, 0 where they are not judged."""
    ideal_Q: Values
    """Discounted gain of the best ranking."""
    answers_Q: Ints
    family_Q: Ints
    new_Q: Bools
    """Queries with new answers."""

    def measured(self, score_QK: Values | Floats) -> dict[str, Values]:
        """Measure [q] the order of the documents by scores [q, k]; equal scores keep the hybrid order."""
        order_QK = np.argsort(-np.where(self.row_QK >= 0, score_QK, -np.inf), axis=1, kind="stable")
        gain_QK = np.take_along_axis(self.gain_QK, order_QK, axis=1)
        return {
            NDCG: discounted(gain_QK) / self.ideal_Q,
            RECALL: (gain_QK[:, :FIRST] > 0).sum(axis=1) / self.answers_Q,
        }


@dataclass(frozen=True)
class Listing:
    """Hybrid results of one fold: of its unseen queries, of dev queries, and of queries that teach."""

    fold: Fold
    weight: float
    """BM25's, chosen on dev queries."""
    unseen: Candidates
    dev: Candidates
    taught: Queries
    """Train queries, each with one answer."""
    answer_Q: Ints
    negative_QS: Ints
    """Documents near the top of a train query's list that do not answer it; -1 where there are fewer."""


@dataclass(frozen=True)
class Sizes:
    """How many queries of a fold are searched, unseen and of dev, and how many teach, at most."""

    unseen: int
    dev: int
    taught: int
    depth: int = DEPTH
    """Documents of a list that are read, at most."""


def listing(study: Study, fold: Fold, seed: int, sizes: Sizes) -> Listing:
    """List hybrid results of a fold's queries by the contrast training with a seed, now or from an earlier run."""
    (variant,) = (variant for variant in VARIANTS if variant.name == CONTRAST)
    unseen_Q, dev_Q = drawn(len(fold.queries), sizes.unseen), drawn(len(fold.dev), sizes.dev)
    query_P, document_P = fold.examples.pair_P2.T
    first_Q = np.unique(query_P, return_index=True)[1]
    first_Q = first_Q[drawn(len(first_Q), sizes.taught)]
    taught = Queries(
        [str(row) for row in query_P[first_Q]],
        fold.examples.query_QM[query_P[first_Q]],
        {},
        [fold.examples.query_texts[row] for row in query_P[first_Q]],
    )
    unseen, dev = fold.queries.some(unseen_Q), fold.dev.some(dev_Q)

    def make() -> Arrays:
        phase = study.phase(variant, fold, seed)
        train(phase)
        document_NM, module = phase.documents(), phase.tower.module

        def parts(untrained: Queries) -> tuple[Queries, tuple[Floats, Ints], tuple[Floats, Ints]]:
            queries = untrained.with_vectors(encode(module, untrained.vector_QM))
            dense = exact_rows(queries.vector_QM, document_NM, None, DEPTH)
            return queries, dense, study.words.best(queries.texts, DEPTH)

        all_dev, dense, lexical = parts(fold.dev)
        columns = listed(dense, lexical, document_NM, all_dev, study.place, study.name_N)
        weight = best(np.stack([columns.values(weight)[NDCG] for weight in WEIGHTS]))
        results: Arrays = {"weight": np.array(weight)}
        for name, queries in (("unseen", unseen), ("dev", dev), ("taught", taught)):
            trained, dense, lexical = parts(queries)
            score_QK, row_QK = hybrid(dense, lexical, document_NM, trained, weight)
            results |= {f"{name} scores": score_QK, f"{name} rows": row_QK}
        known = fold.examples.known()
        row_QK = results.pop("taught rows")[:, :NEAR]
        results.pop("taught scores")
        wrong_QK = (row_QK >= 0) & ~known(query_P[first_Q][:, None], row_QK)
        place_QK = np.random.default_rng(seed).permuted(np.where(wrong_QK, row_QK, -1), axis=1)
        place_QK = np.take_along_axis(place_QK, np.argsort(place_QK < 0, axis=1, kind="stable"), axis=1)
        return {**results, "negatives": place_QK[:, :NEGATIVES]}

    queries = {"unseen": sizes.unseen, "dev": sizes.dev, "taught": sizes.taught}
    key = cache.key("late", fold.name, seed, queries, DEPTH, NEAR, NEGATIVES)
    arrays = cache.kept(study.kept / f"{key}.npz", make)
    arrays = {name: array[:, : sizes.depth] if array.ndim > 1 else array for name, array in arrays.items()}
    return Listing(
        fold,
        float(arrays["weight"]),
        candidates(study, unseen, arrays, "unseen", fold.family_Q[unseen_Q], fold.new_Q[unseen_Q]),
        candidates(study, dev, arrays, "dev", np.arange(len(dev)), np.ones(len(dev), dtype=bool)),
        taught,
        document_P[first_Q],
        arrays["negatives"],
    )


def drawn(count: int, most: int) -> Bools:
    """Mark up to `most` of `count` rows, drawn at random."""
    return mask(np.random.default_rng(0).permutation(count)[:most], count)


def candidates(study: Study, queries: Queries, arrays: Arrays, name: str, family_Q: Ints, new_Q: Bools) -> Candidates:
    """Look up the grades of the documents that are listed under a name for queries."""
    score_QK, row_QK = arrays[f"{name} scores"], arrays[f"{name} rows"]
    gain_QK, ideal_Q, answers_Q = np.zeros(row_QK.shape, dtype=np.int64), np.zeros(len(row_QK)), []
    for query, grades in enumerate(queries.grades[of] for of in queries.ids):
        for document in relevant(grades):
            if document in study.place:
                gain_QK[query, row_QK[query] == study.place[document]] = grades[document]
        best = sorted((grades[document] for document in relevant(grades)), reverse=True)
        ideal_Q[query] = discounted(np.array([best], dtype=np.int64))[0]
        answers_Q.append(len(best))
    return Candidates(queries, score_QK, row_QK, gain_QK, ideal_Q, np.array(answers_Q), family_Q, new_Q)


def hybrid(
    dense: tuple[Floats, Ints], lexical: tuple[Floats, Ints], document_NM: Floats, queries: Queries, weight: float
) -> tuple[Floats, Ints]:
    """Fuse what vectors and BM25 list, scores and rows [q, k] each: the best hundred scores and rows of each query."""
    score_QK, row_QK = np.full((len(queries), DEPTH), -np.inf, np.float32), np.full((len(queries), DEPTH), -1)
    for query, (dense_K, word_K, row_K) in enumerate(zip(dense[1], *lexical, strict=True)):
        there_K = row_K >= 0
        row_F = np.union1d(dense_K[dense_K >= 0], row_K[there_K])
        words_F = np.zeros(len(row_F))
        words_F[np.searchsorted(row_F, row_K[there_K])] = word_K[there_K] / max(word_K.max(initial=0), 1e-9)
        score_F = document_NM[row_F] @ queries.vector_QM[query] + weight * words_F
        best = np.argsort(-score_F, kind="stable")[:DEPTH]
        score_QK[query, : len(best)], row_QK[query, : len(best)] = score_F[best], row_F[best]
    return score_QK, row_QK

"""Group queries that ask for the same into families, and families into folds, so that folds share no query.

Two queries are related if they share an answer, or if the Jaccard similarity of their words is at least ½. A family is
a connected component of related queries.

Jaccard similarity divides shared words by the words of both queries. A division by the words of one query joined a
third or more of oewn_examples to one family. One word is half of a short sentence (docs/results/LOG.md).

Shapes: Q queries, W words, D answers, X pairs of queries.
"""

import unicodedata
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import regex

from rayhier.arrays import Bools, Ints
from rayhier.dataset.holdout import hash_ids

if TYPE_CHECKING:  # SciPy takes a sixth of a second to import, and a plan needs none
    from scipy.sparse import csr_array

PAIRS = 1_000_000
AROUND = regex.compile(r"^[¿¡\s]+|[\p{Sentence_Terminal}\s]+$")
FEWEST_FAMILIES, LARGEST = 50, 0.1
"""A shared answer joins queries if FEWEST_FAMILIES remain, and no family has a larger share of the queries than
LARGEST."""


def families(words: Sequence[Collection[str]], answers: Sequence[Collection[str]]) -> Ints:
    """Number the family [q] of each query, from 0.

    `words` holds each query's words, as `dataset.words` splits them, and `answers` the ids of its answers. A query
    without words is related through answers alone. ValueError if `words` and `answers` differ in length.

    >>> families([["red", "fox"], ["red", "fox", "den"], ["owl"], ["bat"]], [["a"], ["b"], ["b"], ["c"]])
    array([0, 0, 0, 1])
    """
    if len(words) != len(answers):
        raise ValueError(f"words of {len(words)} queries and answers of {len(answers)}; allowed: of the same queries")
    word_QW, family_Q = incidence(words), connected(answers)
    rare_QW, size_Q, row_Q = _rarest(word_QW), word_QW.sum(axis=1), np.arange(len(words))
    pairs_Q = np.cumsum(rare_QW @ rare_QW.sum(axis=0))
    for part in np.split(row_Q, np.flatnonzero(np.diff(pairs_Q // PAIRS)) + 1):
        alike = (rare_QW[part] @ rare_QW.T).tocoo()
        first_X, other_X = part[alike.row], alike.col
        first_X, other_X = first_X[first_X < other_X], other_X[first_X < other_X]
        shared_X = word_QW[first_X].multiply(word_QW[other_X]).sum(axis=1)
        # |A∩B| / |A∪B| >= 1/2, in whole numbers.
        near_X = 3 * shared_X >= size_Q[first_X] + size_Q[other_X]
        first_Q = np.unique(family_Q, return_index=True)[1][family_Q]  # joins each query to the first of its family
        edges = np.append(first_X[near_X], row_Q), np.append(other_X[near_X], first_Q)
        family_Q = _components(*edges, len(words))
    return family_Q


def _rarest(word_QW: "csr_array") -> "csr_array":
    """Keep the rarest words of each query: half of its words, rounded down, and one more word.

    Two queries with a Jaccard similarity of at least ½ share at least half of each query's words. So they share a kept
    word. Frequent words would relate too many queries to compare all pairs.
    """
    size_Q, count_W, every = word_QW.sum(axis=1), word_QW.sum(axis=0), word_QW.tocoo()
    order_X = np.lexsort((every.col, count_W[every.col], every.row))
    row_X, column_X = every.row[order_X], every.col[order_X]
    place_X = np.arange(len(row_X)) - np.repeat(np.cumsum(size_Q) - size_Q, size_Q)
    is_rare_X = place_X <= size_Q[row_X] // 2
    ones = np.ones(int(is_rare_X.sum()), np.int64)
    return type(word_QW)((ones, (row_X[is_rare_X], column_X[is_rare_X])), shape=word_QW.shape)


def connected(members: Sequence[Collection[Hashable]]) -> Ints:
    """Number the family [q] of each query. Queries that share a member are one family. Takes linear time.

    >>> connected([["a"], ["b"], ["a", "c"], ["c"]])
    array([0, 1, 0, 0])
    """
    member_QW = incidence(members).tocoo()
    query_X, word_X = member_QW.row.astype(np.int64), member_QW.col.astype(np.int64) + len(members)
    return _components(query_X, word_X, sum(member_QW.shape))[: len(members)]


def alike(texts: Sequence[str], answers: Sequence[Collection[str]]) -> tuple[Ints, str]:
    """Number the family [q] of each query, and say what the queries of a family share.

    Queries of a family share the normalised text. A shared answer also joins queries, if at least 50 families then
    remain, none with more than a tenth of the queries.
    """
    spelled = [[("text", normal(text))] for text in texts]
    family_Q = connected([[*own, *found] for own, found in zip(spelled, answers, strict=True)])
    size_F = np.bincount(family_Q)
    if len(size_F) >= FEWEST_FAMILIES and size_F.max() <= LARGEST * len(texts):
        return family_Q, "the text or an answer"
    return connected(spelled), "the text"


def normal(text: str) -> str:
    """Return a text without case, extra blanks, invisible characters, and marks around a sentence, to compare queries.

    >>> normal("Where  is the Ｆox ?")
    'where is the fox'
    """
    written = "".join(one for one in unicodedata.normalize("NFKC", text) if unicodedata.category(one) != "Cf")
    plain = " ".join(written.casefold().split())
    return AROUND.sub("", plain) or plain


def some(family_Q: Ints, texts: Sequence[str], most: int) -> Bools:
    """Mark at most `most` queries [q] of whole families, in the order of a hash. If none fits, mark the smallest."""
    _, family_Q, size_F = np.unique(family_Q, return_inverse=True, return_counts=True)
    hash_F = np.full(len(size_F), np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(hash_F, family_Q, hash_ids([normal(text) for text in texts]))
    marked_F, room = np.zeros(len(size_F), bool), most
    for family in np.argsort(hash_F, kind="stable").tolist():
        marked_F[family] = size_F[family] <= room
        room -= int(size_F[family]) if marked_F[family] else 0
    if not marked_F.any() and len(size_F):
        marked_F[np.lexsort((hash_F, size_F))[0]] = True
    return np.asarray(marked_F[family_Q])


def asked_before(asked: Mapping[str, str], earlier: Mapping[str, str]) -> tuple[Bools, Bools]:
    """Mark queries [q] with an earlier query's id, and further queries with an earlier text. Maps are id -> text."""
    texts = {normal(text) for text in earlier.values()}
    id_Q = np.array([query in earlier for query in asked], bool)
    return id_Q, np.array([normal(text) in texts for text in asked.values()], bool) & ~id_Q


def told_before(split: str, queries: int, by_id: int, by_text: int) -> str:
    doing = "train" if split == "dev" else "train or choose"
    return f"{by_id + by_text:,} of {queries:,} {split} queries also {doing}: {by_id:,} by id, {by_text:,} by text"


def told_cut(families: int, shared: str) -> str:
    if shared == "nothing":
        return f"dev is about a tenth of the {families:,} train queries, of which no two ask the same"
    return f"dev is cut out of train by {families:,} families of queries that share {shared}"


def incidence(members: Sequence[Collection[Hashable]]) -> "csr_array":
    from scipy.sparse import csr_array

    sets = [dict.fromkeys(names) for names in members]
    number: dict[Hashable, int] = {}
    column_X = [number.setdefault(name, len(number)) for names in sets for name in names]
    row_X = np.repeat(np.arange(len(sets)), [len(names) for names in sets])
    return csr_array((np.ones(len(column_X), np.int64), (row_X, column_X)), shape=(len(sets), len(number)))


def _components(from_X: Ints, to_X: Ints, nodes: int) -> Ints:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(from_X), np.int8), (from_X, to_X)), shape=(nodes, nodes))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def folds(family_Q: Ints, count: int, seed: int) -> Ints:
    """Divide queries into `count` folds of about equal numbers of queries. Returns the fold [q] of each query.

    The fold with the fewest queries gets the largest remaining family. `seed` orders families of equal size. ValueError
    if `count` is below 2 or above the number of families.

    >>> folds(np.array([0, 0, 0, 1, 2, 3]), 2, seed=0).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    family_Q = np.unique(family_Q, return_inverse=True)[1]
    size_F = np.bincount(family_Q)
    if not 2 <= count <= len(size_F):
        raise ValueError(f"count: got {count}; allowed: 2 to {len(size_F)}, the number of families")
    order_F = np.random.default_rng(seed).permutation(len(size_F))
    order_F = order_F[np.argsort(-size_F[order_F], kind="stable")]
    fold_F, queries = np.empty(len(size_F), dtype=np.int64), np.zeros(count, dtype=np.int64)
    for family in order_F:
        fold_F[family] = queries.argmin()
        queries[fold_F[family]] += size_F[family]
    return np.asarray(fold_F[family_Q])

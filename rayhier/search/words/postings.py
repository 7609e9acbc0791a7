"""BM25 over the postings of an index's shards, mapped into memory: the exact best documents of a query.

A shard's postings are published with it and made into mapped arrays once on a machine, without removed rows, as its
lists are. Rarity and mean length are those of all shards' documents, whichever of them are searched, so that a
document's score is the same however an index is divided.

The formula is Lucene's, as bm25s has it by default: a document scores for each word of the query ln(1 + (N - n + .5) /
(n + .5)) · f / (f + k1 (1 - b + b l / L)), where n of N documents have the word, this one f times among its l words,
and L is the mean of l. Words are added the rarest first. Once no further word can bring another document among the
best, the others are looked up only for the documents found (MaxScore: Turtle and Flood, "Query evaluation", 1995).

Shapes: V words, P postings, N rows of a shard, T words of a query, Q queries, K results.
"""

import json
import logging
import math
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.arrays import Bools, Floats, Ints, Values
from rayhier.dataset.documents import document_texts
from rayhier.dataset.words import postings as count_words
from rayhier.dataset.words import word_hashes, words
from rayhier.search.segment.tail import TailView
from rayhier.storage import cache, schemas
from rayhier.storage.cache import Lease
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.shard import Shard

log = logging.getLogger(__name__)
K1, B = 1.5, 0.75
FORMAT = 2
TIES = 4
"""Results that are found for each one asked, at most, where scores tie."""
KIND, ABOUT = "postings", "about.json"
Weighted = tuple[npt.NDArray[np.uint64], Floats]
"""Hashes of a text's words [t], and what each weighs: its rarity times how often the text has it."""


_shared: "weakref.WeakValueDictionary[str, Postings]" = weakref.WeakValueDictionary()
"""The postings in use, by what they were made of."""


class Postings:
    """Postings of a shard in mapped arrays; or only the number of documents that have each word."""

    def __init__(self, lease: Lease, *, rarity_alone: bool = False) -> None:
        self._lease, about = lease, json.loads((lease.folder / ABOUT).read_bytes())
        self.documents = int(about["documents"])
        """Number of documents."""
        self.total = int(about["words"])
        """Number of words in all documents."""
        self._hash_V, self._frequency_V = (self._array(name) for name in ("word", "frequency"))
        if rarity_alone:
            return
        self.begin_V: Ints = self._array("begin")
        """Place of each word's first posting [v]."""
        self.row_P: Ints = self._array("row")
        """Row of each posting [p], ascending within a word."""
        self.count_P: Ints = self._array("count")
        """How often the posting's document has the word [p]."""
        self.length_N: Floats = self._array("length")
        """Number of words [n] of each row's document; 0 for a document's second row."""
        self.most_V: Floats = self._array("most")
        """Most that a word's part f / (f + …) is in any document [v], where the mean length is the shard's own."""

    @classmethod
    def open(
        cls, leaf_map: LeafMap, shard: Shard, limit: float = math.inf, *, rarity_alone: bool = False
    ) -> "Postings":
        """Open a shard's postings at the leaf map's version, or with `rarity_alone` only what rarity is computed from.

        InputError if the shard has none, or the file is not as the manifest lists it. Files on this machine stay
        within `limit` bytes, except those that are mapped. Versions share the postings of shards that did not change.
        """
        void_V = leaf_map.void(shard)
        digest = "none" if shard.postings is None else shard.postings.sha256
        made_of = f"{FORMAT} {digest} {shard.rows} {void_V.tolist()} {rarity_alone}"

        def fill(folder: Path) -> None:
            _write(folder, _counted(leaf_map, shard), shard.rows, void_V, rarity_alone=rarity_alone)

        shared = _shared.get(made_of)
        if shared is None or not shared.intact():
            shared = _shared[made_of] = cls(cache.get_or_build(KIND, made_of, fill, limit), rarity_alone=rarity_alone)
        return shared

    def _array(self, name: str) -> Any:
        return np.asarray(np.load(self._lease.folder / f"{name}.npy", mmap_mode="r"))

    def find(self, hash_T: npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
        """Return the place [t] of each word by its hash, and the number of documents [t] that have it: 0 for none.

        The place of a word that no document has is any.
        """
        if not len(self._hash_V):
            return np.zeros(len(hash_T), np.int64), np.zeros(len(hash_T), np.int64)
        place_T = np.minimum(np.searchsorted(self._hash_V, hash_T), len(self._hash_V) - 1)
        return place_T, np.where(self._hash_V[place_T] == hash_T, self._frequency_V[place_T], 0)

    def intact(self) -> bool:
        """Return True if the mapped files are unchanged since they were opened."""
        return self._lease.intact()


def _counted(leaf_map: LeafMap, shard: Shard) -> pa.Table:
    table = leaf_map.postings(shard)
    if table.schema.metadata == schemas.POSTINGS.metadata:
        return table
    log.warning("%s: an older rayhier split its words; counted again until rayhier index compact", shard.file.name)
    whole = replace(leaf_map, manifest=leaf_map.manifest.model_copy(update={"removed": []}))
    rows = whole.read(shard, ["rank", "title", "text"])
    is_first_N = rows["rank"].to_numpy() == 0
    texts = document_texts(rows.filter(pa.array(is_first_N)))
    return count_words(texts, np.flatnonzero(is_first_N), leaf_map.manifest.language)


def _write(folder: Path, table: pa.Table, rows: int, void_V: Ints, *, rarity_alone: bool) -> None:
    """Write a shard's postings as arrays, words by their hashes, without the rows `void_V` [v] of all its `rows`."""
    row_lists, count_lists = (table[name].combine_chunks() for name in ("rows", "counts"))
    word_P = np.repeat(np.arange(table.num_rows), np.diff(row_lists.offsets.to_numpy()))
    row_P, count_P = row_lists.flatten().to_numpy(), count_lists.flatten().to_numpy()
    if len(void_V):
        kept_N = np.ones(rows, bool)
        kept_N[void_V] = False
        kept_P = kept_N[row_P]
        word_P, count_P = word_P[kept_P], count_P[kept_P]
        row_P = (np.cumsum(kept_N) - 1)[row_P[kept_P]]
    hash_V = word_hashes(table["word"].to_pylist())
    order_V = np.argsort(hash_V)
    place_V = np.empty_like(order_V)
    place_V[order_V] = np.arange(len(order_V))
    order_P = np.argsort(place_V[word_P], kind="stable")
    frequency_V = np.bincount(place_V[word_P], minlength=len(hash_V)).astype(np.int32)
    length_N = np.bincount(row_P, weights=count_P, minlength=rows - len(void_V)).astype(np.float32)
    total, documents = int(count_P.sum()), len(np.unique(row_P))
    arrays: dict[str, npt.NDArray[Any]] = {"word": hash_V[order_V], "frequency": frequency_V}
    if not rarity_alone:
        row_P, count_P = row_P[order_P].astype(np.int32), count_P[order_P]
        begin_V = np.cumsum(frequency_V, dtype=np.int64) - frequency_V
        part_P = _part(count_P, length_N[row_P], total / max(1, documents))
        left = frequency_V > 0
        most_V = np.zeros(len(hash_V), np.float32)
        if left.any():
            most_V[left] = np.maximum.reduceat(part_P, begin_V[left])
        small = np.min_scalar_type(int(count_P.max(initial=0)))
        arrays |= {"begin": begin_V, "row": row_P, "count": count_P.astype(small), "length": length_N, "most": most_V}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    about = {"documents": documents, "words": total}
    (folder / ABOUT).write_text(json.dumps(about))


def _part(count_P: Ints, length_P: Floats, mean: float) -> Floats:
    """Return f / (f + k1 (1 - b + b l / L)) of postings [p] from counts f, documents' lengths l, and the mean L."""
    f_P = count_P.astype(np.float32)
    return np.asarray(f_P / (f_P + (np.float32(K1 * (1 - B)) + np.float32(K1 * B / max(mean, 1e-9)) * length_P)))


class PostingLists:
    """BM25 over the documents of some shards, or of a range of each one's rows."""

    def __init__(
        self, searched: Sequence[Postings], spans: Sequence[tuple[int, int]], others: Sequence[Postings] = ()
    ) -> None:
        """Search opened shards, in the rows of each from one number to before another. Rows are numbered on and on.

        Rarity is counted over the documents of these shards and of `others`.
        """
        self._searched, self._spans, self._others = list(searched), list(spans), list(others)
        shards = [*searched, *others]
        self.documents = sum(postings.documents for postings in shards)
        """Number of documents of the whole index."""
        self.mean = sum(postings.total for postings in shards) / max(1, self.documents)
        """Mean length of these documents, in words."""
        lengths = [postings.length_N for postings in searched]
        self.length_N = np.concatenate([np.zeros(0, np.float32), *lengths])
        """Number of words [n] of each row's document; 0 for a document's second row."""
        self._begins = np.cumsum([0, *map(len, lengths)]).tolist()
        # Where documents are longer in the mean than a shard's, its own lengths count less, and scores are higher.
        means = [postings.total / max(1, postings.documents) for postings in searched]
        self._higher = [max(1.0, self.mean / max(mean, 1e-9)) for mean in means]
        self._memory = threading.local()

    def intact(self) -> bool:
        """Return True if the mapped files are unchanged since they were opened."""
        return all(postings.intact() for postings in (*self._searched, *self._others))

    def best(
        self, texts: Sequence[str], k: int, mask_N: Bools | None = None, further: TailView | None = None
    ) -> tuple[Floats, Ints]:
        """Return scores and rows [q, t] of the best k documents that share a word with each text, best first.

        Documents whose scores tie with the last follow, TIES times k in all at most, so that it does not depend on the
        division of an index which of them are found. Scores are -inf and rows -1 where there are fewer. With a mask
        [n], only rows where it is True are results. Rarity is counted over all documents either way, and over
        `further` ones.
        """
        if not k:
            return np.zeros((len(texts), 0), np.float32), np.zeros((len(texts), 0), np.int64)
        ranked = [_first(*self._best(text, k, mask_N, further), k) for text in texts]
        most = max((len(row_T) for _, row_T in ranked), default=0)
        score_QT, row_QT = np.full((len(texts), most), -np.inf, np.float32), np.full((len(texts), most), -1)
        for query, (score_T, row_T) in enumerate(ranked):
            score_QT[query, : len(row_T)], row_QT[query, : len(row_T)] = score_T, row_T
        return score_QT, row_QT

    def part(self, count_X: Ints, row_X: Ints) -> Floats:
        """Return f / (f + …) of rows [x] that have a word so often."""
        return self.share(count_X, self.length_N[row_X])

    def share(self, count_X: Ints, length_X: Floats) -> Floats:
        """Return f / (f + …) of documents [x] of given lengths that have a word so often."""
        return _part(count_X, length_X, self.mean)

    def weighted(self, text: str, further: TailView | None = None) -> Weighted:
        """Weigh a text's words by their rarity in all documents, and `further` ones; 0 where none has a word."""
        return self._weighted(text, further)[0]

    def _best(self, text: str, k: int, mask_N: Bools | None, further: TailView | None = None) -> tuple[Floats, Ints]:
        """Return scores and rows [c] of at least the best k documents, if there are as many, in any order."""
        try:
            return self._summed(self._query(text, further), k, mask_N)
        except BaseException:
            self._memory.__dict__.clear()  # sums that were begun would count for the next query
            raise

    def _summed(self, query: "_Query", k: int, mask_N: Bools | None) -> tuple[Floats, Ints]:
        score_N, threshold = self._accumulator, 0.0
        parts: list[Ints] = []
        for word in range(query.words):
            if threshold > query.left_T[word]:
                return self._looked_up(query, word, *_taken(parts, score_N), k)
            row_X, count_X = self._list(query, word)
            if mask_N is not None:
                allowed_X = mask_N[row_X]
                row_X, count_X = row_X[allowed_X], count_X[allowed_X]
            before_X = score_N[row_X]
            score_N[row_X] = before_X + query.weight_T[word] * self.part(count_X, row_X)
            parts.append(row_X[before_X == 0] if word else row_X)
            if word + 1 < query.words:
                first = max(parts, key=len)
                threshold = max(threshold, _kth(score_N[first], k))
        return _taken(parts, score_N)

    def _weighted(self, text: str, further: TailView | None) -> tuple[Weighted, list[tuple[Ints, Ints]]]:
        """Weigh a text's words [t], 0 where no document has one. Returns too what `find` returns of searched shards."""
        # Documents of an English index do not have the stop words of a query.
        hash_T, times_T = np.unique(word_hashes(words(text, "other")), return_counts=True)
        places = [postings.find(hash_T) for postings in (*self._searched, *self._others)]
        frequency_T, documents = sum((has_T for _, has_T in places), np.zeros(len(hash_T))), self.documents
        if further is not None:
            frequency_T, documents = frequency_T + further.frequency(hash_T), documents + further.documents
        rarity_T = np.log(1 + (documents - frequency_T + 0.5) / (frequency_T + 0.5))
        weight_T = np.where(frequency_T > 0, times_T * rarity_T, 0).astype(np.float32)
        return (hash_T, weight_T), places[: len(self._searched)]

    def _query(self, text: str, further: TailView | None) -> "_Query":
        (_, weight_T), places = self._weighted(text, further)
        # The rarest words come first, by how often the query has them.
        order_T = np.argsort(-weight_T, kind="stable")
        order_T = order_T[weight_T[order_T] > 0]
        most_T, ranges = np.zeros(len(order_T)), list[list[tuple[int, int]]]()
        for postings, higher, (at_T, has_T) in zip(self._searched, self._higher, places, strict=True):
            place_T, has_T = at_T[order_T], has_T[order_T]
            if not len(postings.most_V):
                ranges.append([(0, 0)] * len(order_T))
                continue
            most_T = np.maximum(most_T, np.where(has_T > 0, postings.most_V[place_T] * higher, 0))
            begin_T = postings.begin_V[place_T]
            ranges.append(list(zip(begin_T.tolist(), (begin_T + has_T).tolist(), strict=True)))
        left_T = np.cumsum((weight_T[order_T] * most_T)[::-1])[::-1] * (1 + 1e-5)
        return _Query(weight_T[order_T], left_T, ranges)

    def _list(self, query: "_Query", word: int) -> tuple[Ints, Ints]:
        """Return the rows [x], ascending, that have a word, and how often each has it."""
        rows, counts = [], []
        for postings, span, first, ranges in zip(self._searched, self._spans, self._begins, query.ranges, strict=False):
            begin, end = ranges[word]
            if begin < end and span != (0, len(postings.length_N)):
                begin, end = (begin + np.searchsorted(postings.row_P[begin:end], span)).tolist()
            if begin < end:
                rows.append(postings.row_P[begin:end] + first if first else postings.row_P[begin:end])
                counts.append(postings.count_P[begin:end])
        if len(rows) == 1:
            return rows[0], counts[0]
        return np.concatenate([_NONE, *rows]), np.concatenate([_NONE, *counts])

    def _looked_up(self, query: "_Query", word: int, score_C: Floats, row_C: Ints, k: int) -> tuple[Floats, Ints]:
        """Add the words from `word` on to candidates' scores [c], leaving out those that cannot be among the best."""
        for later in range(word, query.words):
            able_C = score_C + query.left_T[later] >= _kth(score_C, k)
            score_C, row_C = score_C[able_C], row_C[able_C]
            row_X, count_X = self._list(query, later)
            if len(row_X) and len(row_C):
                at_C = np.minimum(np.searchsorted(row_X, row_C), len(row_X) - 1)
                has_C = row_X[at_C] == row_C
                score_C[has_C] += query.weight_T[later] * self.part(count_X[at_C[has_C]], row_C[has_C])
        return score_C, row_C

    @property
    def _accumulator(self) -> Floats:
        """Zeros [n] for the scores of rows. Whoever uses them sets them to zero again. A thread has its own."""
        if not hasattr(self._memory, "score_N"):
            self._memory.score_N = np.zeros(len(self.length_N), np.float32)
        score_N: Floats = self._memory.score_N
        return score_N


_NONE = np.zeros(0, np.uint8)


@dataclass(frozen=True)
class _Query:
    """Words of a query that documents have, the rarest first."""

    weight_T: Floats
    """Rarity of each word times how often the query has it [t]."""
    left_T: Values
    """Most that each word and all after it add to a score [t]."""
    ranges: list[list[tuple[int, int]]]
    """Begin and end of the postings of each word, for each shard."""

    @property
    def words(self) -> int:
        return len(self.weight_T)


def _taken(parts: Sequence[Ints], score_N: Floats) -> tuple[Floats, Ints]:
    """Take the scores and rows [c] of all parts, each once, and set them to zero."""
    row_C = parts[0] if len(parts) == 1 else np.concatenate([_NONE, *parts])
    score_C = score_N[row_C]
    score_N[row_C] = 0
    return score_C, row_C


def _first(score_C: Floats, row_C: Ints, k: int) -> tuple[Floats, Ints]:
    """Return the best k scores and rows, ties by row, and those that tie with the last."""
    able_C = np.flatnonzero(score_C >= _kth(score_C, k))
    order_C = able_C[np.lexsort((row_C[able_C], -score_C[able_C]))[: TIES * k]]
    score_T = score_C[order_C]
    count = k + int((score_T[k:] == score_T[k - 1]).sum()) if len(score_T) > k else len(score_T)
    return score_T[:count], row_C[order_C[:count]]


def _kth(score_C: Floats, k: int) -> float:
    """Return the k-th best of scores; 0 where there are fewer."""
    return float(np.partition(score_C, len(score_C) - k)[len(score_C) - k]) if len(score_C) >= k else 0.0

"""BM25 over postings: the exact best documents of a query. Postings are a shard's mapped files, or arrays in memory.

A shard's postings are published with it, and made into mapped arrays once on a machine, without removed rows. Rarity
and mean length count the documents of all shards. So a document's score does not depend on the division of an index.

The formula is Lucene's, as bm25s has it by default. Each word of the query adds to a document's score:

| ln(1 + (N - n + 0.5) / (n + 0.5)) · f / (f + k1 (1 - b + b l / L))

Of N documents, n have the word. The scored document has the word f times among its l words. L is the mean of l. k1 is
1.5 and b is 0.75. The rarest words are added first, so that equal documents have equal scores. The numpy code here is
the oracle of the native code (`search/native/words.cpp`), and runs if the native code is missing.

Shapes: V words, P postings, C kinds of postings, N rows of a shard, T words of a query, Q queries, K results.
"""

import logging
import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.documents import document_texts
from rayhier.dataset.words import postings as count_words
from rayhier.dataset.words import word_hashes, words
from rayhier.search.native import extension, threads_for
from rayhier.search.segment.tail import TailView
from rayhier.spec import InputError
from rayhier.spec.corpus import Language
from rayhier.storage import cache, schemas
from rayhier.storage.cache import Lease
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.shard import Shard

log = logging.getLogger(__name__)
K1, B = 1.5, 0.75
FORMAT = 4
TIES = 4
"""Largest number of results that are found for each wanted result if scores tie."""
KIND = "postings"
Weighted = tuple[npt.NDArray[np.uint64], Floats]
"""Hashes of a text's words [t], and their weights: rarity times how often the text has the word."""


_shared: "weakref.WeakValueDictionary[str, Postings]" = weakref.WeakValueDictionary()
"""Description of a shard's words -> postings in use, which versions share."""


class Postings:
    """Postings of a shard, or only the number of documents that have each word."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]], lease: Lease | None = None) -> None:
        """Take the arrays that `counted` returns. If the arrays are mapped files, `lease` keeps these files."""
        self._lease = lease
        self.documents, self.total, self.rows = arrays["size"].tolist()
        """Number of documents, of words in all documents, and of rows."""
        self.hash_V, self.frequency_V = arrays["word"], arrays["frequency"]
        """Hashes of words [v], ascending, and the number of documents [v] that have each word."""
        if "row" not in arrays:
            return
        self.begin_V: Ints = arrays["begin"]
        """Place of each word's first posting [v]."""
        self.row_P: Ints = arrays["row"]
        """Row of each posting [p], ascending within a word."""
        self.kind_P: Ints = arrays["kind"]
        """Kind of each posting [p]: how often the document has the word, and how long the document is."""
        self.count_C, self.length_C = arrays["count"], arrays["length"]
        """Count of the word [c] and length of the document [c] of each kind."""
        self.most_V: Floats = arrays["most"]
        """Highest f / (f + k1 (1 - b + b l / L)) of each word [v] in any document. L is the shard's mean length."""

    @classmethod
    def open(
        cls, leaf_map: LeafMap, shard: Shard, limit: float = math.inf, *, rarity_alone: bool = False
    ) -> "Postings":
        """Open a shard's postings at the leaf map's version, or with `rarity_alone` only the counts for rarity.

        InputError if the shard has none, or the file is not as the manifest lists it. Unmapped cached files beyond
        `limit` bytes are removed. Versions share the postings of shards that did not change.
        """
        void_V = leaf_map.void(shard)
        digest = "none" if shard.postings is None else shard.postings.sha256
        rule = f"{FORMAT} {schemas.rule(leaf_map.manifest.language)}"
        made_of = f"{rule} {digest} {shard.rows} {void_V.tolist()} {rarity_alone}"

        def fill(folder: Path) -> None:
            table = _table(leaf_map, shard)
            for name, array in counted(table, shard.rows, void_V, rarity_alone=rarity_alone).items():
                np.save(folder / f"{name}.npy", array)

        shared = _shared.get(made_of)
        if shared is None or not shared.intact():
            lease = cache.get_or_build(KIND, made_of, fill, limit)
            paths = lease.folder.glob("*.npy")
            shared = cls({path.stem: np.asarray(np.load(path, mmap_mode="r")) for path in paths}, lease)
            _shared[made_of] = shared
        return shared

    def find(self, hash_T: npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
        """Return the place [t] of each word's first posting, found by its hash, and its number of documents [t]."""
        if not len(self.hash_V):
            return np.zeros(len(hash_T), np.int64), np.zeros(len(hash_T), np.int64)
        place_T = np.minimum(np.searchsorted(self.hash_V, hash_T), len(self.hash_V) - 1)
        return place_T, np.where(self.hash_V[place_T] == hash_T, self.frequency_V[place_T], 0)

    def intact(self) -> bool:
        return self._lease is None or self._lease.intact()


def _table(leaf_map: LeafMap, shard: Shard) -> pa.Table:
    table, language = leaf_map.postings(shard), leaf_map.manifest.language
    rule, today = schemas.rule_of(table.schema), schemas.rule(language)
    if rule == today:
        return table
    if rule.split()[0] == today.split()[0]:
        raise InputError(
            f"{leaf_map.root}: words: got stems of {rule[2:]} with {today[2:]} here; allowed: a PyStemmer of that "
            "version, or rayhier upgrade of the workdir"
        )
    log.warning("%s: words of an older rayhier. They are counted again until rayhier index compact", shard.file.name)
    whole = replace(leaf_map, manifest=leaf_map.manifest.model_copy(update={"removed": []}))
    rows = whole.read(shard, ["rank", "title", "text"])
    is_first_N = rows["rank"].to_numpy() == 0
    texts = document_texts(rows.filter(pa.array(is_first_N)))
    return count_words(texts, np.flatnonzero(is_first_N), language)


def counted(
    table: pa.Table, rows: int, void_V: Ints | Sequence[int] = (), *, rarity_alone: bool = False
) -> dict[str, npt.NDArray[Any]]:
    """Make the arrays of `Postings` from a table of words and their rows. Of `rows` rows, `void_V` [v] are removed."""
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
    length_N = np.bincount(row_P, weights=count_P, minlength=rows - len(void_V)).astype(np.int64)
    total, documents = int(count_P.sum()), len(np.unique(row_P))
    size = np.array([documents, total, rows - len(void_V)])
    arrays: dict[str, npt.NDArray[Any]] = {"word": hash_V[order_V], "frequency": frequency_V, "size": size}
    if not rarity_alone:
        row_P = row_P[order_P].astype(np.int32)
        begin_V = np.cumsum(frequency_V, dtype=np.int64) - frequency_V
        kinds = pa.array(count_P[order_P].astype(np.int64) << 32 | length_N[row_P]).dictionary_encode()
        count_C, length_C = np.divmod(kinds.dictionary.to_numpy(), 1 << 32)
        kind_P = kinds.indices.to_numpy().astype(np.uint16 if len(count_C) <= 1 << 16 else np.uint32)
        part_C = _part(count_C, length_C, total / max(1, documents))
        left = frequency_V > 0
        most_V = np.zeros(len(hash_V), np.float32)
        if left.any():
            most_V[left] = np.maximum.reduceat(part_C[kind_P], begin_V[left])
        arrays |= {"begin": begin_V, "row": row_P, "kind": kind_P, "count": count_C, "length": length_C, "most": most_V}
    return arrays


def _part(count_X: Ints, length_X: Ints | Floats, mean: float) -> Floats:
    """Compute f / (f + k1 (1 - b + b l / L)) for counts f [x] and document lengths l [x]. L is their mean length."""
    f_X, l_X = count_X.astype(np.float32), length_X.astype(np.float32)
    return np.asarray(f_X / (f_X + (np.float32(K1 * (1 - B)) + np.float32(K1 * B / max(mean, 1e-9)) * l_X)))


class PostingLists:
    """BM25 over the documents of some shards, or of a range of the rows of each shard."""

    def __init__(
        self,
        searched: Sequence[Postings],
        spans: Sequence[tuple[int, int]],
        others: Sequence[Postings] = (),
        *,
        language: Language,
    ) -> None:
        """Take the shards that searches read, each with a range of its rows. `others` count only for words' rarity."""
        self.language = language
        self._searched, self._spans, self._shards = list(searched), list(spans), [*searched, *others]
        self.documents = sum(postings.documents for postings in self._shards)
        """Number of documents of the whole index."""
        self.mean = sum(postings.total for postings in self._shards) / max(1, self.documents)
        """Mean length of the whole index's documents, in words."""
        self._parts = [self.share(postings.count_C, postings.length_C) for postings in searched]
        self._native = extension() and extension().WordLists(
            [self._file(*file) for file in zip(searched, self._parts, spans, strict=True)],
            [(postings.hash_V, postings.frequency_V) for postings in others],
            self.documents,
        )

    def _file(self, postings: Postings, part_C: Floats, span: tuple[int, int]) -> tuple[Any, ...]:
        # If documents are longer on average than in a shard, its own lengths count less, and scores are higher.
        higher = max(1.0, self.mean / max(postings.total / max(1, postings.documents), 1e-9))
        of_words = postings.hash_V, postings.frequency_V, postings.begin_V, postings.most_V
        return *of_words, postings.row_P, postings.kind_P, part_C, higher, postings.rows, *span

    def intact(self) -> bool:
        return all(postings.intact() for postings in self._shards)

    def best(
        self, texts: Sequence[str], k: int, mask_N: Bools | None = None, further: TailView | None = None
    ) -> tuple[Floats, Ints]:
        """Return scores and rows [q, t] of the best k documents that share a word with each text, best first.

        Documents whose scores tie with the last follow, at most TIES times k in all. So the documents found do not
        depend on the division of an index. For missing documents, scores are -inf and rows -1. Only rows that `mask_N`
        [n] marks are results, but rarity is counted over all documents and `further` documents.
        """
        words_Q = [words(text, self.language) for text in texts]
        hash_T = word_hashes(chain.from_iterable(words_Q))
        count_Q = [len(of_text) for of_text in words_Q]
        if self._native is None:
            hashes = np.split(hash_T, np.cumsum(count_Q)[:-1])
            return _padded([self._best(of_text, k, mask_N, further) for of_text in hashes[: len(texts)]])
        tail = (None, 0) if further is None else (further.frequency(hash_T), further.documents)
        found: tuple[Floats, Ints] = self._native.best(hash_T, count_Q, k, TIES, mask_N, *tail, threads_for(len(texts)))
        return found

    def share(self, count_X: Ints, length_X: Ints | Floats) -> Floats:
        """Compute `_part` of counts [x] of a word in documents of given lengths [x]. L is `mean`."""
        return _part(count_X, length_X, self.mean)

    def weighted(self, text: str, further: TailView | None = None) -> Weighted:
        """Weigh a text's words by their rarity in all documents and `further` documents. Unknown words have 0."""
        return self._weighted(word_hashes(words(text, self.language)), further)

    def _weighted(self, hashes: npt.NDArray[np.uint64], further: TailView | None) -> Weighted:
        hash_T, times_T = np.unique(hashes, return_counts=True)
        frequency_T = sum((postings.find(hash_T)[1] for postings in self._shards), np.zeros(len(hash_T)))
        documents = self.documents
        if further is not None:
            frequency_T, documents = frequency_T + further.frequency(hash_T), documents + further.documents
        rarity_T = np.log(1 + (documents - frequency_T + 0.5) / (frequency_T + 0.5))
        return hash_T, np.where(frequency_T > 0, times_T * rarity_T, 0).astype(np.float32)

    def _best(
        self, hashes: npt.NDArray[np.uint64], k: int, mask_N: Bools | None, further: TailView | None
    ) -> tuple[Floats, Ints]:
        """Return scores and rows [t] of the best k documents and of those that tie with the last, best first."""
        score_N = self.scores(self._weighted(hashes, further))
        row_C = np.flatnonzero(score_N > 0 if mask_N is None else (score_N > 0) & mask_N)
        return _first(score_N[row_C], row_C, k)

    def scores(self, weighted: Weighted) -> Floats:
        """Score all rows [n] for a text's words, 0 if a row has none of the words."""
        hash_T, weight_T = weighted
        order_T = np.argsort(-weight_T, kind="stable")
        hash_T, weight_T = hash_T[order_T], weight_T[order_T]
        score_N = np.zeros(sum(postings.rows for postings in self._searched), np.float32)
        first_N = 0
        for postings, part_C, (first, last) in zip(self._searched, self._parts, self._spans, strict=True):
            sum_N = score_N[first_N : first_N + postings.rows]
            for weight, place, has in zip(weight_T, *postings.find(hash_T), strict=True):
                at = slice(postings.begin_V[place], postings.begin_V[place] + has) if has else slice(0)
                sum_N[postings.row_P[at]] += weight * part_C[postings.kind_P[at]]
            sum_N[:first] = sum_N[last:] = 0
            first_N += postings.rows
        return score_N


def _first(score_C: Floats, row_C: Ints, k: int) -> tuple[Floats, Ints]:
    """Return the best k scores and rows, ties by row, and those that tie with the last."""
    if not 0 < k < len(score_C):
        order_C = np.lexsort((row_C, -score_C))[:k]
        return score_C[order_C], row_C[order_C]
    kth = np.partition(score_C, len(score_C) - k)[len(score_C) - k]
    able_C = np.flatnonzero(score_C >= kth)
    order_C = able_C[np.lexsort((row_C[able_C], -score_C[able_C]))[: TIES * k]]
    return score_C[order_C], row_C[order_C]


def _padded(ranked: Sequence[tuple[Floats, Ints]]) -> tuple[Floats, Ints]:
    most = max((len(row_T) for _, row_T in ranked), default=0)
    score_QT, row_QT = np.full((len(ranked), most), -np.inf, np.float32), np.full((len(ranked), most), -1)
    for query, (score_T, row_T) in enumerate(ranked):
        score_QT[query, : len(row_T)], row_QT[query, : len(row_T)] = score_T, row_T
    return score_QT, row_QT

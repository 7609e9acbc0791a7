"""Words of documents, counted by leaf, and the words that set a node apart from all others: its keywords.

A. Kilgarriff, "Simple maths for keywords" (2009): (f_node + n) / (f_rest + n), with frequencies per million words.

Shapes: A counts (a word in a leaf or node), K nodes, W words.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Ints

BETWEEN = r"[^\pL\pN]+"
"""What stands between two words (RE2)."""
SHORTEST, LONGEST = 2, 40
"""Characters of a word that counts."""
MOST_A_LEAF = 300
"""Different words of a leaf that are counted, the most frequent ones."""
FEWEST = 3
"""Least number of times that a keyword stands in all documents; a corpus of fewer than FEW words has any."""
FEW = 10_000
SMOOTHING = 100.0
"""n of the formula: greater values prefer frequent words."""
COUNTED_ROWS = 20_000
"""Documents whose words are in memory at a time."""


def counted(table: pa.Table, leaves: int) -> "Counts":
    """Count the words of a table's documents; columns `leaf`, `title` and `text`, each document in one row."""
    merged: dict[str, int] = {}
    total_L, keys, counts = np.zeros(leaves, np.int64), [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for begin in range(0, table.num_rows, COUNTED_ROWS):
        leaf_A, words, count_A = _count(table.slice(begin, COUNTED_ROWS))
        number_W = np.array([merged.setdefault(word, len(merged)) for word in words.dictionary.to_pylist()])
        word_A = number_W[words.indices.to_numpy()] if len(words) else np.zeros(0, np.int64)
        total_L += np.bincount(leaf_A, weights=count_A, minlength=leaves).astype(np.int64)
        keys.append(leaf_A.astype(np.int64) << 32 | word_A)
        counts.append(count_A)
    key_A, count_A = _summed(np.concatenate(keys), np.concatenate(counts))
    made = Counts(np.array([*merged], dtype=object), key_A >> 32, key_A & 0xFFFFFFFF, count_A, total_L)
    return made.most_frequent()


def _count(table: pa.Table) -> tuple[Ints, pa.DictionaryArray, Ints]:
    """The leaf, the word and the number of times [a] of every word in every leaf."""
    texts = pc.binary_join_element_wise(table["title"], table["text"], " ").combine_chunks()
    split = pc.split_pattern_regex(pc.utf8_lower(texts), BETWEEN)
    words, row = pc.list_flatten(split), pc.list_parent_indices(split)
    length = pc.utf8_length(words)
    held = pc.and_(pc.greater_equal(length, SHORTEST), pc.less_equal(length, LONGEST))
    own = pa.table({"leaf": table["leaf"].combine_chunks().take(row.filter(held)), "word": words.filter(held)})
    counts = own.group_by(["leaf", "word"]).aggregate([([], "count_all")]).combine_chunks()
    word = counts["word"].combine_chunks().dictionary_encode()
    leaf, count = (counts[name].to_numpy() for name in ("leaf", "count_all"))
    return leaf, word, count.astype(np.int64)


def _summed(key_A: Ints, count_A: Ints) -> tuple[Ints, Ints]:
    """Sum the counts of equal keys; keys ascend."""
    keys, place_A = np.unique(key_A, return_inverse=True)
    return keys, np.bincount(place_A, weights=count_A, minlength=len(keys)).astype(np.int64)


@dataclass(frozen=True)
class Counts:
    """How often words stand in leaves, or in the nodes of a level."""

    words: np.ndarray
    """Words [w]."""
    node_A: Ints
    word_A: Ints
    count_A: Ints
    total_K: Ints
    """Number of all words of each node."""

    def most_frequent(self) -> "Counts":
        """Keep the most frequent words of every node."""
        order = np.lexsort((self.word_A, -self.count_A, self.node_A))
        node_A = self.node_A[order]
        kept = np.sort(order[np.arange(len(order)) - np.searchsorted(node_A, node_A) < MOST_A_LEAF])
        return Counts(self.words, self.node_A[kept], self.word_A[kept], self.count_A[kept], self.total_K)

    def table(self) -> pa.Table:
        """The counts as columns `leaf`, `word` and `count`; the word is null where all words of a leaf are counted."""
        words = pa.array(self.words, pa.string()).take(pa.array(self.word_A))
        held = np.flatnonzero(self.total_K)
        leaf = np.concatenate([self.node_A, held])
        count = np.concatenate([self.count_A, self.total_K[held]])
        return pa.table(
            {"leaf": leaf, "word": pa.concat_arrays([words, pa.nulls(len(held), pa.string())]), "count": count}
        )

    @classmethod
    def of(cls, table: pa.Table, leaves: int) -> "Counts":
        """Read the columns that `table` made."""
        whole, own = table.filter(pc.is_null(table["word"])), table.filter(pc.is_valid(table["word"]))
        word = own["word"].combine_chunks().dictionary_encode()
        total_L = np.zeros(leaves, np.int64)
        total_L[whole["leaf"].to_numpy()] = whole["count"].to_numpy()
        words, leaf_A, count_A = (
            np.array(word.dictionary.to_pylist(), dtype=object),
            own["leaf"].to_numpy(),
            own["count"].to_numpy(),
        )
        return cls(words, leaf_A, word.indices.to_numpy().astype(np.int64), count_A, total_L)

    def above(self, parent_K: Ints, nodes: int) -> "Counts":
        """Counts of the level above, by the parent of every node."""
        key_A, count_A = _summed(parent_K[self.node_A].astype(np.int64) << 32 | self.word_A, self.count_A)
        total = np.bincount(parent_K, weights=self.total_K, minlength=nodes).astype(np.int64)
        return Counts(self.words, key_A >> 32, key_A & 0xFFFFFFFF, count_A, total)

    def keywords(self, most: int) -> list[list[str]]:
        """The words of each node that set it apart from the rest, best first, at most so many."""
        every, whole_W = max(1, int(self.total_K.sum())), self._whole()
        score_A = kilgarriff(self.count_A, self.total_K[self.node_A], whole_W[self.word_A], every)
        # A word that stands elsewhere as often is no keyword.
        held = (score_A > 1) & (whole_W[self.word_A] >= (FEWEST if every > FEW else 1))
        node_A, word_A, score_A = self.node_A[held], self.word_A[held], score_A[held]
        order = np.lexsort((word_A, -score_A, node_A))
        node_A, word_A = node_A[order], word_A[order]
        best = np.arange(len(order)) - np.searchsorted(node_A, node_A) < most
        found: list[list[str]] = [[] for _ in self.total_K]
        for node, word in zip(node_A[best].tolist(), word_A[best].tolist(), strict=True):
            found[node].append(self.words[word])
        return found

    def _whole(self) -> Ints:
        return np.bincount(self.word_A, weights=self.count_A, minlength=len(self.words)).astype(np.int64)


def kilgarriff(count_A: Ints, total_A: Ints, whole_A: Ints, every: int) -> Floats:
    """Score words in nodes: (per million of the node + n) / (per million of the rest + n).

    `count_A` of the node's `total_A` words are the word, and `whole_A` of all `every` words.
    """
    own_A = 1e6 * count_A / np.maximum(total_A, 1)
    rest_A = 1e6 * (whole_A - count_A) / np.maximum(every - total_A, 1)
    return np.asarray((own_A + SMOOTHING) / (rest_A + SMOOTHING))


def joined(parts: Iterable[Counts]) -> Counts:
    """Join the counts of several parts of the documents, whose words are numbered anew."""
    merged: dict[str, int] = {}
    keys, counts, totals = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], []
    for part in parts:
        number_W = np.array([merged.setdefault(word, len(merged)) for word in part.words], dtype=np.int64)
        keys.append(part.node_A << 32 | (number_W[part.word_A] if len(number_W) else part.word_A))
        counts.append(part.count_A)
        totals.append(part.total_K)
    key_A, count_A = _summed(np.concatenate(keys), np.concatenate(counts))
    return Counts(np.array([*merged], dtype=object), key_A >> 32, key_A & 0xFFFFFFFF, count_A, np.sum(totals, axis=0))

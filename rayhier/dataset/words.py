"""Words of texts as BM25 counts them: which documents have a word, and how often."""

import hashlib
import re
from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from bm25s.stopwords import STOPWORDS_EN

from rayhier.arrays import Ints
from rayhier.storage import schemas

WORD = re.compile(r"(?u)\b\w\w+\b")
STOP_WORDS = frozenset(STOPWORDS_EN)


def words(text: str) -> list[str]:
    """Split a text into the words that BM25 counts: of two letters or more, in lower case, no English stop words.

    They are those of bm25s by default.

    >>> words("The quick fox, the FOX")
    ['quick', 'fox', 'fox']
    """
    return [word for word in WORD.findall(text.lower()) if word not in STOP_WORDS]


def word_hashes(distinct: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Hash each word to a number of 64 bits [v], by which words are looked up: the first 8 bytes of its BLAKE2b."""
    digests = [hashlib.blake2b(word.encode(), digest_size=8).digest() for word in distinct]
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


def occurrences(texts: Iterable[str], blank: Sequence[str] = ()) -> tuple[list[str], Ints, Ints, Ints]:
    """Split texts into words: the distinct words; of each occurrence the text [t] and its word's number [t]; lengths.

    Texts without a word have those of `blank`. Lengths [n] are numbers of words.
    """
    number, numbers, lengths = dict[str, int](), array("i"), list[int]()
    for text in texts:
        text_words = words(text) or blank
        numbers.extend([number.setdefault(word, len(number)) for word in text_words])
        lengths.append(len(text_words))
    length_N = np.array(lengths, np.int64)
    return list(number), np.repeat(np.arange(len(lengths)), length_N), np.frombuffer(numbers, np.int32), length_N


def postings(texts: Sequence[str], row_N: Ints) -> pa.Table:
    """Count the words of texts: a table of `schemas.POSTINGS`, a row for each word, in the order of words.

    `row_N` [n], ascending, are the numbers by which the table names the texts. Texts without a word have the empty one,
    zero times: they count as documents too.
    """
    distinct, text_T, word_T, _ = occurrences(texts, [""])
    spelled = pa.array(distinct, pa.string())
    order = pc.sort_indices(spelled)
    place_V = np.empty(len(distinct), np.int64)
    place_V[order.to_numpy()] = np.arange(len(distinct))
    pair_P, count_P = np.unique(place_V[word_T] * max(1, len(texts)) + text_T, return_counts=True)
    word_P, text_P = np.divmod(pair_P, max(1, len(texts)))
    if "" in distinct:
        count_P[word_P == 0] = 0  # the first of all words
    offsets = pa.array(np.searchsorted(word_P, np.arange(len(distinct) + 1)), pa.int32())
    lists = {
        "rows": pa.ListArray.from_arrays(offsets, pa.array(np.asarray(row_N)[text_P], pa.int32())),
        "counts": pa.ListArray.from_arrays(offsets, pa.array(count_P, pa.int32())),
    }
    return pa.table({"word": spelled.take(order), **lists}, schema=schemas.POSTINGS)

"""Words of texts as BM25 counts them: which documents have a word, and how often.

A word is a run of letters, digits, marks and underscores, as Unicode has them, in any script. In scripts without
blanks between words, each pair of neighbouring characters counts as a word, as in Lucene's CJK analyzer.
"""

import hashlib
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import regex

from rayhier.arrays import Ints
from rayhier.storage import schemas
from rayhier.storage.schemas import Language

UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Hangul}\p{Yi}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"\p{Tai_Le}\p{New_Tai_Lue}\p{Tai_Tham}\p{Tai_Viet}\p{Javanese}\p{Balinese}々〆ー"
)
"""Scripts without blanks between words, and Hangul, whose words end in particles."""
LETTER = rf"[\w--[{UNSPACED}\p{{M}}]]"
WORD = regex.compile(
    rf"{LETTER}[\w--[{UNSPACED}]]+|(?<!\w['’]){LETTER}(?!['’]\w)|[{UNSPACED}][{UNSPACED}\p{{M}}]*", regex.V1
)
"""Matches two letters or more, a letter that no apostrophe cuts off (`don't`), or a run in a script without blanks."""
ASCII = re.compile(r"\w\w+|(?<!\w')\w(?!'\w)", re.ASCII)
"""The same words in a text of ASCII, which are found faster."""
RUN = regex.compile(f"[{UNSPACED}]", regex.V1)
CHARACTER = regex.compile(r"\X")
UNWRITTEN = regex.compile(
    r"[\u00ad\u200c\u200d\u0640\u064b-\u0652\u0670\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    r"\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""What writers may leave out: soft hyphens, joiners, vowel signs of Arabic and Hebrew, variants of glyphs."""
ENGLISH_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there "
    "these they this to was will with"
)
"""Lucene's stop words, as bm25s has them."""
STOP_WORDS: dict[Language, frozenset[str]] = {
    "english": frozenset((*ENGLISH_STOP_WORDS.split(), "i")),
    "other": frozenset(),
}
ENGLISH, RARE, SOME = ("the", "and", "with", "that", "this"), 50, 10_000
"""Texts are English if these words, rare in other languages, are more than one in RARE words of the first SOME
texts."""


def language_of(texts: Iterable[str]) -> Language:
    count = Counter(word for text in islice(texts, SOME) for word in words(text, "other"))
    return "english" if RARE * sum(count[word] for word in ENGLISH) > count.total() else "other"


def words(text: str, language: Language = "english") -> list[str]:
    """Split a text into the words that BM25 counts: in lower case, in Unicode's form NFKC, without stop words.

    >>> words("The quick fox, the FOX; plan B")
    ['quick', 'fox', 'fox', 'plan', 'b']
    >>> words("हिन्दी में किताब, 压缩文件")
    ['हिन्दी', 'में', 'किताब', '压缩', '缩文', '文件']
    """
    if text.isascii():
        found = ASCII.findall(text.lower())
    else:
        written = UNWRITTEN.sub("", unicodedata.normalize("NFKC", text))
        folded = unicodedata.normalize("NFKC", written.casefold())
        found = WORD.findall(folded)
        if RUN.search(folded):
            found = [part for word in found for part in (_pairs(word) if RUN.match(word) else [word])]
    stop_words = STOP_WORDS[language]
    return [word for word in found if word not in stop_words]


def _pairs(run: str) -> list[str]:
    """Return each pair of neighbouring characters, with their marks, or a single character as it is."""
    characters = CHARACTER.findall(run)
    return [one + next_ for one, next_ in pairwise(characters)] or characters


def word_hashes(distinct: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Hash each word to a number of 64 bits [v], by which words are looked up: the first 8 bytes of its BLAKE2b."""
    digests = [hashlib.blake2b(word.encode(), digest_size=8).digest() for word in distinct]
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


def occurrences(
    texts: Iterable[str], language: Language, blank: Sequence[str] = ()
) -> tuple[list[str], Ints, Ints, Ints]:
    """Split texts into words: the distinct words, each occurrence's text [t] and word number [t], lengths [n].

    Texts without a word have those of `blank`.
    """
    number, numbers, lengths = dict[str, int](), array("i"), list[int]()
    for text in texts:
        text_words = words(text, language) or blank
        numbers.extend([number.setdefault(word, len(number)) for word in text_words])
        lengths.append(len(text_words))
    length_N = np.array(lengths, np.int64)
    return list(number), np.repeat(np.arange(len(lengths)), length_N), np.frombuffer(numbers, np.int32), length_N


def postings(texts: Sequence[str], row_N: Ints, language: Language = "english") -> pa.Table:
    """Count the words of texts: a table of `schemas.POSTINGS`, a row for each word, in the order of words.

    `row_N` [n], ascending, are the numbers by which the table names the texts. Texts without a word have the empty one,
    zero times: they count as documents too.
    """
    distinct, text_T, word_T, _ = occurrences(texts, language, [""])
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

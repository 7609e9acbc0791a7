"""Split texts into words for BM25, and count them: which documents have a word, and how often.

A word is a run of letters, digits, marks and underscores of Unicode, in any script. In scripts without blanks between
words, each pair of neighbouring characters is a word, as in Lucene's CJK analyzer. If the language is known, the
Snowball stemmer (M. F. Porter, 2001) reduces a word to its stem.
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
import Stemmer

from rayhier.arrays import Ints
from rayhier.spec.corpus import Language
from rayhier.storage import schemas

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
"""Matches the words that WORD matches in a text of ASCII, but faster."""
RUN = regex.compile(f"[{UNSPACED}]", regex.V1)
CHARACTER = regex.compile(r"\X")
UNWRITTEN = regex.compile(
    r"[\u00ad\u200c\u200d\u0640\u064b-\u0652\u0670\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    r"\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""Characters that writers may leave out: soft hyphens, joiners, vowel signs of Arabic and Hebrew, glyph variants."""
ENGLISH_STOP_WORDS = """a an and are as at be but by for if in into is it no not of on or such that the their then
    there these they this to was will with"""
"""Lucene's stop words, as bm25s has them."""
STOP_WORDS = {"english": frozenset((*ENGLISH_STOP_WORDS.split(), "i"))}
FREQUENT: dict[Language, str] = {
    "arabic": "في من على إلى أن التي هذا عن",
    "catalan": "els amb dels als aquest aquesta també perquè",
    "czech": "že jsou pro které jako podle nebo při",
    "danish": "af nogle hvad blevet mod uden deres",
    "dutch": "het een van niet zijn ook voor aan",
    "english": "the and with that this",
    "finnish": "ja on ei että oli myös joka",
    "french": "le les des est dans et du aux",
    "german": "der die und das ist nicht ein mit",
    "greek": "και το του της η ο να είναι",
    "hindi": "के में की है से का और",
    "hungarian": "az és hogy nem egy volt meg csak",
    "indonesian": "yang dan untuk dengan dari ini tidak",
    "italian": "il di che della per non sono è",
    "norwegian": "av etter ble hva noen fra",
    "persian": "به از که این را است",
    "polish": "nie się jest że oraz przez dla od",
    "portuguese": "os uma não em do da um ao",
    "romanian": "și în este din pentru sau cu sunt",
    "russian": "что это как его она был чтобы если",
    "spanish": "el los las del una por que y",
    "swedish": "och att för är inte ett från också",
    "turkish": "ve bir bu için ile olarak çok daha",
}
"""Frequent words that identify the language of texts. Few of these words are frequent in two languages."""
RARE, TWICE, SOME = 50, 2, 10_000
"""Texts have a language if more than one in RARE words of the first SOME texts is frequent in the language. These words
must be TWICE as many as the frequent words of any other language."""


def language_of(texts: Iterable[str]) -> Language:
    """Detect the language of texts. `none` if no language is frequent enough, or if languages are mixed."""
    count = Counter(word for text in islice(texts, SOME) for word in words(text, "none"))
    found = {language: sum(count[word] for word in of.split()) for language, of in FREQUENT.items()}
    first, second = sorted(found, key=found.__getitem__, reverse=True)[:2]
    return first if found[first] > max(count.total() / RARE, TWICE * found[second]) else "none"


def words(text: str, language: Language = "english") -> list[str]:
    """Split a text into the words that BM25 counts: stems of words in lower case and in Unicode's form NFKC.

    English stop words are left out. With language `none`, words are not reduced to stems.

    >>> words("The quick foxes, the FOX; plan B")
    ['quick', 'fox', 'fox', 'plan', 'b']
    >>> words("हिन्दी में किताब, 压缩文件", "none")
    ['हिन्दी', 'में', 'किताब', '压缩', '缩文', '文件']
    """
    return stems(unstemmed(text, language), language)


def stems(plain: list[str], language: Language) -> list[str]:
    return plain if language == "none" else Stemmer.Stemmer(language, 0).stemWords(plain)


def unstemmed(text: str, language: Language) -> list[str]:
    if text.isascii():
        found = ASCII.findall(text.lower())
    else:
        written = UNWRITTEN.sub("", unicodedata.normalize("NFKC", text))
        folded = unicodedata.normalize("NFKC", written.casefold())
        found = WORD.findall(folded)
        if RUN.search(folded):
            found = [part for word in found for part in (_pairs(word) if RUN.match(word) else [word])]
    stop_words = STOP_WORDS.get(language, ())
    return [word for word in found if word not in stop_words]


def _pairs(run: str) -> list[str]:
    """Return each pair of neighbouring characters, with their marks, or a single character as it is."""
    characters = CHARACTER.findall(run)
    return [one + next_ for one, next_ in pairwise(characters)] or characters


def word_hashes(distinct: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Hash each word to a number of 64 bits [v] for look-ups: the first 8 bytes of its BLAKE2b hash."""
    digests = [hashlib.blake2b(word.encode(), digest_size=8).digest() for word in distinct]
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


def occurrences(
    texts: Iterable[str], language: Language, blank: Sequence[str] = ()
) -> tuple[list[str], Ints, Ints, Ints]:
    """Split texts into words. Returns distinct words, each occurrence's text [t] and word [t], and lengths [n].

    A text without a word gets the words of `blank`.
    """
    number, numbers, lengths = dict[str, int](), array("i"), list[int]()
    for text in texts:
        text_words = unstemmed(text, language) or blank
        numbers.extend([number.setdefault(word, len(number)) for word in text_words])
        lengths.append(len(text_words))
    length_N, of_stem = np.array(lengths, np.int64), dict[str, int]()
    stem_V = np.array([of_stem.setdefault(stem, len(of_stem)) for stem in stems(list(number), language)], np.int64)
    word_T = stem_V[np.frombuffer(numbers, np.int32)]
    return list(of_stem), np.repeat(np.arange(len(lengths)), length_N), word_T, length_N


def postings(texts: Sequence[str], row_N: Ints, language: Language = "english") -> pa.Table:
    """Count the words of texts: a table of `schemas.POSTINGS`, with a row for each word, in the order of words.

    `row_N` [n], ascending, numbers the texts. Texts without a word count too, by zero times the empty word.
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
        "word": spelled.take(order),
        "rows": pa.ListArray.from_arrays(offsets, pa.array(np.asarray(row_N)[text_P], pa.int32())),
        "counts": pa.ListArray.from_arrays(offsets, pa.array(count_P, pa.int32())),
    }
    return pa.table(lists, schema=schemas.POSTINGS.with_metadata({schemas.RULE: schemas.rule(language)}))

"""Files of made-up words in MS MARCO's format and size: passages about topics, and queries with answers.

Everything follows from seeds. A chunk of passages is made, written and forgotten before the next.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

PASSAGES, TRAIN, TEST = 8_841_823, 500_000, 6_980
"""Passages of MS MARCO, about its train queries with an answer, and the queries of its dev.small."""
FEWEST_TEST = 500
WORDS, TOPIC_WORDS, ABOUT = 30_000, 60, 400
"""Words of the language, words of a topic, and passages a topic has, about."""
SHORTEST, LONGEST = 8, 16
"""Words of a passage."""
OWN, OTHER = 0.55, 0.15
"""Shares of a passage's words that are of its topic, and of a second topic; the others are of the language."""
QUERY_SHORTEST, QUERY_LONGEST, FROM_ANSWER = 3, 5, 0.8
"""Words of a query, and the share of them that stand in its answer; the others are of the answer's topic."""
CHUNK = 50_000
"""Passages that are made at a time."""
OF_LANGUAGE, OF_TOPIC = 1.0, 0.5
"""Exponents of Zipf's law for the words of the language, and for those of a topic."""
SEED = 0

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Size:
    """Numbers of passages and queries."""

    passages: int
    train: int
    test: int

    @classmethod
    def of(cls, share: float) -> "Size":
        """A share of MS MARCO, with enough test queries to measure anything."""
        return cls(round(share * PASSAGES), round(share * TRAIN), max(FEWEST_TEST, round(share * TEST)))


def vocabulary() -> list[str]:
    """The words of the language, the most frequent first; no two are equal."""
    syllables = [a + b for a, b in product("bdfgklmnprstvwz", "aeiou")]
    triples = np.random.default_rng(SEED).permutation(len(syllables) ** 3)[:WORDS].tolist()
    n = len(syllables)
    return [syllables[one // n**2] + syllables[one // n % n] + syllables[one % n] for one in triples]


@dataclass(frozen=True)
class Chunk:
    """Words of passages [n, LONGEST] by number, how many each has [n], and its topic [n]."""

    word_NW: Numbers
    length_N: Numbers
    topic_N: Numbers

    def words(self, row: int) -> list[int]:
        """The words of one passage."""
        words: list[int] = self.word_NW[row, : self.length_N[row]].tolist()
        return words


class Language:
    """Words, topics, and passages and queries made of them."""

    def __init__(self, passages: int) -> None:
        """Make a language with as many topics as suit a number of passages."""
        self.words = vocabulary()
        rng = np.random.default_rng([SEED, 1])
        topics = max(20, passages // ABOUT)
        self.topic_TW = rng.integers(0, WORDS, (topics, TOPIC_WORDS))

    @cached_property
    def _frequent(self) -> npt.NDArray[np.float64]:
        return zipf(WORDS, OF_LANGUAGE)

    @cached_property
    def _frequent_of_topic(self) -> npt.NDArray[np.float64]:
        return zipf(TOPIC_WORDS, OF_TOPIC)

    def _of_topics(self, rng: np.random.Generator, topic_X: Numbers) -> Numbers:
        """Draw a word of each topic."""
        return np.asarray(self.topic_TW[topic_X, draw(rng, self._frequent_of_topic, topic_X.shape)])

    def passages(self, number: int, count: int) -> Chunk:
        """Make the passages of a chunk."""
        rng = np.random.default_rng([SEED, 2, number])
        shape = (count, LONGEST)
        topic_N, other_N = rng.integers(0, len(self.topic_TW), (2, count))
        source_NW = rng.random(shape)
        own_NW, other_NW = (
            self._of_topics(rng, np.broadcast_to(topic[:, None], shape)) for topic in (topic_N, other_N)
        )
        word_NW = draw(rng, self._frequent, shape)
        word_NW = np.where(source_NW < OWN + OTHER, other_NW, word_NW)
        word_NW = np.where(source_NW < OWN, own_NW, word_NW)
        return Chunk(word_NW, rng.integers(SHORTEST, LONGEST + 1, count), topic_N)

    def queries(self, number: int, chunk: Chunk, count: int) -> Iterator[tuple[int, str]]:
        """Make queries that passages of a chunk answer, each another one: the passage's row, and the query's text."""
        rng = np.random.default_rng([SEED, 3, number])
        rows = rng.choice(len(chunk.topic_N), count, replace=False)
        shape = (count, QUERY_LONGEST)
        length_Q = rng.integers(QUERY_SHORTEST, QUERY_LONGEST + 1, count)
        place_QW = (rng.random(shape) * chunk.length_N[rows][:, None]).astype(np.int64)
        of_topic_QW = self._of_topics(rng, np.broadcast_to(chunk.topic_N[rows][:, None], shape))
        word_QW = np.where(rng.random(shape) < FROM_ANSWER, chunk.word_NW[rows[:, None], place_QW], of_topic_QW)
        for row, words, length in zip(rows.tolist(), word_QW.tolist(), length_Q.tolist(), strict=True):
            yield row, self.text(words[:length])

    def text(self, numbers: list[int]) -> str:
        """Words as text."""
        return " ".join([self.words[one] for one in numbers])


def zipf(count: int, exponent: float) -> npt.NDArray[np.float64]:
    """Cumulative probabilities of `count` words by Zipf's law."""
    rising = np.cumsum(np.arange(1, count + 1) ** -exponent)
    return np.asarray(rising / rising[-1])


def draw(rng: np.random.Generator, cumulative: npt.NDArray[np.float64], shape: tuple[int, ...]) -> Numbers:
    """Draw numbers by cumulative probabilities."""
    return np.minimum(np.searchsorted(cumulative, rng.random(shape)), len(cumulative) - 1)


def shares(total: int, passages: int) -> list[int]:
    """Divide a number of queries among the chunks, in proportion to their passages.

    >>> shares(3, 100_000)
    [1, 2]
    """
    ends = [*range(CHUNK, passages, CHUNK), passages]
    counts = np.diff([0, *(total * end // passages for end in ends)])
    return [int(count) for count in counts]


def write(folder: Path, size: Size) -> None:
    """Write collection.tsv, and queries and qrels of train and of dev.small."""
    language = Language(size.passages)
    folder.mkdir(parents=True)
    names = ("collection.tsv", "queries.train.tsv", "qrels.train.tsv", "queries.dev.small.tsv", "qrels.dev.small.tsv")
    with ExitStack() as stack:
        collection, *judged = (stack.enter_context((folder / name).open("w")) for name in names)
        asked = 0
        both = zip(shares(size.train, size.passages), shares(size.test, size.passages), strict=True)
        for number, (train, test) in enumerate(both):
            begin = number * CHUNK
            chunk = language.passages(number, min(CHUNK, size.passages - begin))
            rows = range(len(chunk.topic_N))
            collection.writelines(f"{begin + row}\t{language.text(chunk.words(row))}\n" for row in rows)
            for place, (row, text) in enumerate(language.queries(number, chunk, train + test)):
                queries, qrels = judged[:2] if place < train else judged[2:]
                queries.write(f"{asked}\t{text}\n")
                qrels.write(f"{asked}\t0\t{begin + row}\t1\n")
                asked += 1


def write_new(file: Path, size: Size, count: int) -> tuple[str, str]:
    """Write further passages as JSON lines, to be added to the index; returns the id and the text of one."""
    language, chunk_number = Language(size.passages), -(-size.passages // CHUNK)
    chunk = language.passages(chunk_number, count)
    rows = [{"id": f"new{row}", "text": language.text(chunk.words(row))} for row in range(count)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows[count // 2]["id"], rows[count // 2]["text"]

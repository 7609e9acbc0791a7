"""Draw groups that a cross-encoder learns from: a query's answer among wrong documents, with a teacher's scores.

Wrong documents are drawn from the base encoder's best documents, from BM25's best documents, and from all documents.
The teacher is softmax(20 (base + 0.3 BM25 / max)). base is the base encoder's inner product, max the query's best BM25.
"""

from dataclasses import dataclass

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.neighbours import nearest
from rayhier.search.words.bm25 import Bm25Index
from rayhier.spec.corpus import Language
from rayhier.spec.cross_encoder import OF_BASE, OF_BM25, WRONG
from rayhier.train.examples import Examples
from rayhier.train.pairs import draw, mine

SHARPNESS, LEXICAL = 20.0, 0.3
"""SHARPNESS: factor of the teacher's scores before the softmax. LEXICAL: weight of BM25 / best BM25 in these scores."""
TOP = 30
"""Number of best documents, by the base encoder or by BM25, from which wrong documents are drawn."""


@dataclass(frozen=True)
class TrainingGroup:
    """A query, texts of documents [d] with its answer first, and a teacher's scores [d] of these texts."""

    query: str
    documents: list[str]
    teacher_D: Floats


class TrainingGroups:
    def __init__(self, examples: Examples, texts: list[str], language: Language = "english") -> None:
        self.examples, self.texts = examples, texts
        self.words, self.known = Bm25Index(texts, language), examples.known()
        self.query_P = examples.pair_P2[:, 0]
        self.base_PT = mine(self._nearest, self.query_P, self.known, TOP)
        self.bm25_PT = mine(self._sharing, self.query_P, self.known, TOP)

    def __len__(self) -> int:
        return len(self.query_P)

    def draw(self, pair_G: Ints, generator: np.random.Generator) -> list[TrainingGroup]:
        """Draw a group for each of the pairs numbered `pair_G` [g]."""
        base_GB = draw(self.base_PT[pair_G], OF_BASE, generator)
        bm25_GW = draw(self.bm25_PT[pair_G], OF_BM25, generator)
        return [
            self._group(pair, np.concatenate([base_B, bm25_W]), generator)
            for pair, base_B, bm25_W in zip(pair_G.tolist(), base_GB, bm25_GW, strict=True)
        ]

    def _group(self, pair: int, mined_X: Ints, generator: np.random.Generator) -> TrainingGroup:
        query, answer = self.examples.pair_P2[pair].tolist()
        rows = [answer, *dict.fromkeys(mined_X[mined_X >= 0].tolist())]
        rows += self._others(query, rows, generator)
        text = self.examples.query_texts[query]
        base_D = self.examples.document_NM[rows] @ self.examples.query_QM[query]
        score_N = self.words.scores(text)
        bm25_D = score_N[rows] / max(float(score_N.max()), 1e-9)
        return TrainingGroup(text, [self.texts[row] for row in rows], SHARPNESS * (base_D + LEXICAL * bm25_D))

    def _others(self, query: int, taken: list[int], generator: np.random.Generator) -> list[int]:
        """Draw the random documents that a group lacks. `taken` are the answer and the wrong documents so far."""
        n, count = len(self.texts), 1 + WRONG - len(taken)
        if n <= 10 * count + 100:
            drawn_X = generator.permutation(n)
        else:
            drawn_X = generator.integers(n, size=10 * count + 100)
            drawn_X = drawn_X[np.sort(np.unique(drawn_X, return_index=True)[1])]
        free = ~np.isin(drawn_X, taken) & ~self.known(np.full(len(drawn_X), query), drawn_X)
        rows: list[int] = drawn_X[free][:count].tolist()
        return rows

    def _nearest(self, part: Ints, k: int) -> Ints:
        row_PK = nearest(self.examples.query_QM[self.query_P[part]], self.examples.document_NM, k)[0]
        return np.asarray(row_PK)

    def _sharing(self, part: Ints, k: int) -> Ints:
        query_U, place = np.unique(self.query_P[part], return_inverse=True)
        return self.words.best([self.examples.query_texts[query] for query in query_U.tolist()], k)[1][place]

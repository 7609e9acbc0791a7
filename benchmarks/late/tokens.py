"""Vectors of the tokens in the texts of a collection, from the untrained transformer.

Shapes: N texts, X some of them, T tokens of all texts together, M numbers of a vector, I tokens of some queries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks import cache
from benchmarks.collection import Collection
from benchmarks.default_training import Study
from benchmarks.late.candidates import Listing
from rayhier.arrays import Ints
from rayhier.dataset.documents import load_texts
from rayhier.embed.encode import TextEncoder
from rayhier.embed.precision import as_embedded
from rayhier.storage import files

SAMPLE = 50_000
"""Tokens that principal directions and levels of codes are fitted to."""


@dataclass(frozen=True)
class Tokens:
    """Vectors of the tokens of texts, one text behind the other."""

    vector_TM: npt.NDArray[np.float16]
    begin_N: Ints
    """Where each text begins, and the end of the last: one more than there are texts."""

    def rows(self, text_X: Ints) -> Ints:
        """Rows [t] of the tokens of some texts, one text behind the other."""
        begin_X, count_X = self.begin_N[text_X], self.counts(text_X)
        return np.arange(count_X.sum()) - np.repeat(np.cumsum(count_X) - count_X - begin_X, count_X)

    def counts(self, text_X: Ints) -> Ints:
        """Count the tokens [x] of some texts."""
        return self.begin_N[text_X + 1] - self.begin_N[text_X]


def read_tokens(data: Collection, texts: Sequence[str], path: Path) -> Tokens:
    """Read the last hidden states of the untrained transformer for the tokens of texts, now or from an earlier run."""
    begins, vectors = path.with_suffix(".begin.npy"), path.with_suffix(".npy")
    if not begins.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        spec = as_embedded(data.spec, data.vectors, 0).encoder
        encoder = TextEncoder(data.model, spec.model_copy(update={"device": "cpu"}))
        ids = encoder.tokenise(texts)
        begin_N = np.concatenate([[0], np.cumsum([len(tokens) for tokens in ids])])
        vector_TM = np.lib.format.open_memmap(
            vectors, "w+", np.float16, (int(begin_N[-1]), encoder.encoder.layout.width)
        )
        order = np.argsort([-len(tokens) for tokens in ids], kind="stable").tolist()
        while order:
            size = max(1, encoder.tokens // len(ids[order[0]]))
            batch, order = order[:size], order[size:]
            with torch.inference_mode():
                hidden_NTM = encoder.encoder.hidden(*encoder.padded([ids[text] for text in batch])).half().numpy()
            for text, hidden_TM in zip(batch, hidden_NTM, strict=True):
                vector_TM[begin_N[text] : begin_N[text + 1]] = hidden_TM[: len(ids[text])]
        vector_TM.flush()
        files.write(begins, lambda place: np.save(place.open("wb"), begin_N))
    return Tokens(np.load(vectors, mmap_mode="r"), np.load(begins))


@dataclass(frozen=True)
class Read:
    """Tokens of the documents and queries of a collection that are needed."""

    documents: Tokens
    place_N: Ints
    """Place of each row of the collection among the documents that were read; -1: not read."""
    queries: Tokens
    query: Mapping[str, int]
    """Place of each query's text."""

    @classmethod
    def of(cls, study: Study, listings: Sequence[Listing]) -> "Read":
        """Read what some folds need, now or from an earlier run."""
        data, ids, folder = study.bench.collection, study.documents.ids, study.kept.parent / "tokens"
        rows = [
            row
            for listed in listings
            for row in (listed.unseen.row_QK, listed.dev.row_QK, listed.answer_Q, listed.negative_QS)
        ]
        row_X = np.unique(np.concatenate([row.ravel() for row in rows]))
        row_X = row_X[row_X >= 0]
        place_N = np.full(len(ids), -1)
        place_N[row_X] = np.arange(len(row_X))
        names = [ids[row] for row in row_X.tolist()]
        texts = load_texts(data.corpus, names).to_pylist()
        documents = read_tokens(data, texts, folder / cache.key("tokens", study.name, names))
        sides = [of for listed in listings for of in (listed.unseen.queries, listed.dev.queries, listed.taught)]
        queries = sorted({text for side in sides for text in side.texts})
        tokens = read_tokens(data, queries, folder / cache.key("query tokens", study.name, queries))
        return cls(documents, place_N, tokens, {text: place for place, text in enumerate(queries)})

    def query_tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Vectors [i, m] of the tokens of some queries, and the number [i] of each token's query."""
        text_X = np.array([self.query[text] for text in texts])
        of_I = np.repeat(np.arange(len(texts)), self.queries.counts(text_X))
        return halves(self.queries.vector_TM[self.queries.rows(text_X)]), torch.from_numpy(of_I)

    def sample(self, row_X: Ints) -> Tensor:
        """Draw vectors of tokens of some of the collection's documents."""
        rows = self.documents.rows(np.unique(self.place_N[row_X]))
        return halves(self.documents.vector_TM[np.sort(np.random.default_rng(0).permutation(rows)[:SAMPLE])])


def halves(vector_XM: npt.NDArray[np.float16]) -> Tensor:
    """Make floats of half floats."""
    return torch.from_numpy(vector_XM.astype(np.float32))

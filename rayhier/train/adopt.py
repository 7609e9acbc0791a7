"""Decides whether a trained encoder is kept: where queries that training did not read find more with it (ours).

These queries are searched as people's will be: by vectors, and with BM25 where that is usual, each encoder with the
weight of BM25 that these queries choose for it. What training gains by vectors, words often gain as well (docs/LOG.md).
What each weight found is kept: it helps few dev queries to choose the weight of searches (evaluate/fusion.py).

Few dev queries cannot tell: of twenty, the mean gain in nDCG@10 has a standard error of five points. Where a head
trains, which takes seconds, it is therefore trained again without folds of the train queries, and each fold is asked of
the head that did not read it, until ENOUGH queries were asked; generated queries are not asked. Otherwise dev queries
tell: judged ones, or where none are judged, pseudo-queries of held-out documents, by vectors alone, as they share their
words with their documents.

Shapes: Q queries, M embedding size, N documents, K results, P pairs, W weights.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.documents import Documents
from rayhier.dataset.holdout import hash_ids
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import ID, Ranking
from rayhier.model.adoption import MEASURE, Adoption, Source
from rayhier.search.bm25 import Words
from rayhier.search.exact import exact
from rayhier.search.fusion_weight import WEIGHTS
from rayhier.search.fusion_weight import best as best_weight
from rayhier.search.hybrid import Lexical, fused
from rayhier.spec.encoder import ENOUGH, FOLDS
from rayhier.spec.search import HybridSpec
from rayhier.train.encoder import EncoderPhase
from rayhier.train.examples import Examples
from rayhier.train.tower import HeadTower, Tower

RESULTS, DEPTH = 10, 100
"""RESULTS: number of results that nDCG@10 reads; DEPTH: number that vectors and BM25 each give to fusion."""
FEWEST = 10
"""Fewest train queries that are divided into folds."""
FOLD = "fold "
"""Beginning of the names of trainings on folds."""
MOST_COUNTED = 200_000
"""Most documents whose words are counted in memory; in a larger corpus searches are judged by vectors alone."""


class Searches:
    """Searches of documents by exact comparison, judged: by vectors, and with BM25 where words are given."""

    def __init__(self, documents: Documents, words: Callable[[], Words] | None = None, *, cosines: bool = True) -> None:
        """Take documents with base vectors, and a function that counts the words of their rows.

        `cosines` says whether scores by vectors are cosines, beside which BM25's weight counts as it is.
        """
        self.documents, self.cosines = documents, cosines
        self.ids, self.results = (pa.array(names, pa.string()) for names in (documents.ids, documents.results))
        self._count = words if len(documents.ids) <= MOST_COUNTED else None

    @cached_property
    def words(self) -> Words | None:
        """BM25 over the documents' rows, counted at first use; None where queries are searched by vectors."""
        return None if self._count is None else self._count()

    @property
    def mode(self) -> str:
        """How queries are searched: `hybrid` or `dense`."""
        return "dense" if self._count is None else "hybrid"

    def values(self, queries: Queries, query_QM: Floats, document_NM: Floats) -> Values:
        """Compute nDCG@10 [w, q] of queries, from vectors of queries [q, m] and documents [n, m] by one encoder.

        W is 1 where they are searched by vectors, otherwise the values are those of each of WEIGHTS.
        """
        judge = Judge(queries, [MEASURE])
        if self.words is None:
            return judge.values(exact(query_QM, document_NM, self.ids, self.results, RESULTS))[MEASURE][None]
        dense = exact(query_QM, document_NM, self.ids, self.results, DEPTH)
        dense = replace(dense, documents=dense.documents.select([ID]))
        lexical = self._lexical(self.words, queries.texts, query_QM, document_NM)
        return np.stack([judge.values(self._fused(dense, lexical, weight))[MEASURE] for weight in WEIGHTS])

    def _lexical(self, words: Words, texts: Sequence[str], query_QM: Floats, document_NM: Floats) -> Lexical:
        """Rank rows by BM25, with their scores by vectors."""
        score_QK, row_QK = words.best(texts, DEPTH)
        base_QK = np.einsum("qkm,qm->qk", document_NM[row_QK], query_QM)
        base_QK = np.where(row_QK < 0, -np.inf, base_QK).astype(np.float32)
        nothing_Q = np.zeros(len(texts), np.int64)
        table = pa.table({ID: self.results})
        return Lexical(Ranking(score_QK, row_QK, table, nothing_Q, nothing_Q, nothing_Q), base_QK)

    def _fused(self, dense: Ranking, lexical: Lexical, weight: float) -> Ranking:
        return fused(dense, [lexical], RESULTS, HybridSpec(weight=weight), DEPTH, cosines=self.cosines)


def at_best(value_WQ: Values) -> Values:
    """Return the values [q] with the weight that all these queries together choose, of what `Searches` computed."""
    return np.asarray(value_WQ[0] if len(value_WQ) == 1 else value_WQ[WEIGHTS.index(best_weight(value_WQ))])


@dataclass(frozen=True)
class Fold:
    """A part of the train queries, and the pairs of the others."""

    name: str
    examples: Examples
    query_F: Ints
    """Rows of the fold's queries."""
    queries: Queries


def folds(examples: Examples, documents: Documents) -> Iterator[Fold]:
    """Divide judged train queries by a hash of their texts, and yield folds until ENOUGH queries were yielded.

    A fold that would leave no pair is left out.
    """
    fold_Q = (hash_ids(list(examples.query_texts)) % FOLDS).astype(np.int64)
    if examples.judged is not None:
        fold_Q[examples.judged :] = FOLDS  # generated queries are in no fold
    query_P, results, yielded = examples.pair_P2[:, 0], documents.results, 0
    for fold in range(FOLDS):
        inside_P = fold_Q[query_P] == fold
        if yielded >= ENOUGH or inside_P.all() or not inside_P.any():
            continue
        query_F = np.unique(query_P[inside_P])
        grades: dict[str, dict[str, int]] = {str(query): {} for query in query_F}
        for query, document in examples.pair_P2[inside_P].tolist():
            grades[str(query)][results[document]] = 1
        texts = [examples.query_texts[query] for query in query_F.tolist()]
        queries = Queries(list(grades), examples.query_QM[query_F], grades, texts)
        yield Fold(f"{FOLD}{fold + 1}", replace(examples, pair_P2=examples.pair_P2[~inside_P]), query_F, queries)
        yielded += len(query_F)


def needs_folds(examples: Examples, dev: Queries) -> bool:
    """Return True if folds tell what training a head gains: few dev queries, and enough train queries to divide."""
    query_Q = np.unique(examples.pair_P2[:, 0])
    judged = len(query_Q) if examples.judged is None else int((query_Q < examples.judged).sum())
    return len(dev) < ENOUGH and not examples.same and judged >= FEWEST


def decide(
    phase: EncoderPhase,
    dev: Queries,
    searches: Searches,
    source: Source,
    make: Callable[[Tower, Examples], EncoderPhase],
    run: Callable[[str, EncoderPhase], None],
) -> Adoption:
    """Decide, on every worker alike, whether the encoder that a phase has trained is kept.

    `dev` are the dev queries, of the kind `source`, with base vectors. `make` makes a training like the phase's of
    another tower on other examples, and `run` carries it out under a name.
    """
    tower, examples = phase.tower, phase.examples
    if isinstance(tower, HeadTower) and needs_folds(examples, dev):
        source, (base_WQ, trained_WQ) = "train queries in folds", by_folds(tower, examples, searches, make, run)
    else:
        base_WQ, trained_WQ = _values(phase, phase.pairs.side("dev"), np.arange(len(dev)), dev, searches)
    adoption = Adoption.of(source, at_best(base_WQ), at_best(trained_WQ), mode=searches.mode)
    if len(base_WQ) > 1:
        mean_W = (trained_WQ if adoption.adopted else base_WQ).mean(axis=1)
        measured = {f"{weight:g}": round(float(mean), 6) for weight, mean in zip(WEIGHTS, mean_W, strict=True)}
        adoption = adoption.model_copy(update={"measured": measured})
    agreed: Adoption = phase.learner.group.agree(adoption)
    return agreed


def by_folds(
    tower: HeadTower,
    examples: Examples,
    searches: Searches,
    make: Callable[[Tower, Examples], EncoderPhase],
    run: Callable[[str, EncoderPhase], None],
) -> tuple[Values, Values]:
    """Train a head without each fold; returns the measure [w, q] of folds' queries by base and by trained encoders.

    Arguments are those of `decide`. Only the first worker's result counts.
    """
    parts = list[tuple[Values, Values]]()
    for fold in folds(examples, searches.documents):
        other = make(tower.anew(), fold.examples)
        run(fold.name, other)
        parts.append(_values(other, other.pairs.side("query"), fold.query_F, fold.queries, searches))
    if not parts:
        return np.zeros((1, 0)), np.zeros((1, 0))
    base_WQ, trained_WQ = (np.concatenate(values, axis=1) for values in zip(*parts, strict=True))
    return base_WQ, trained_WQ


def _values(
    phase: EncoderPhase, query_XM: Floats, row_Q: Ints, queries: Queries, searches: Searches
) -> tuple[Values, Values]:
    """Compute the measure [w, q] of queries by the base encoder and by a phase's; only the first worker's counts.

    `query_XM` are trained vectors of all texts of the queries' side, of which the queries are the rows [q].
    """
    document_NM = phase.documents()
    if phase.learner.group.rank > 0 or not len(queries):
        return np.zeros((1, 0)), np.zeros((1, 0))
    base_WQ = searches.values(queries, queries.vector_QM, searches.documents.vector_NM)
    return base_WQ, searches.values(queries, query_XM[row_Q], document_NM)


def weights(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of the weights that train, by name."""
    return {name: value.detach().clone() for name, value in module.named_parameters() if value.requires_grad}


@torch.no_grad()
def restore(phase: EncoderPhase, before: dict[str, Tensor]) -> None:
    """Give the encoder of a phase the weights that `weights` returned before training."""
    for name, value in phase.tower.module.named_parameters():
        if name in before:
            value.copy_(before[name])
    phase.learner.version += 1


def is_changed(module: nn.Module, before: dict[str, Tensor]) -> bool:
    """Return True if any weight differs from those that `weights` returned before training."""
    return any(not torch.equal(value, before[name]) for name, value in module.named_parameters() if name in before)

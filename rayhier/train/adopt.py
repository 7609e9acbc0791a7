"""Whether a trained encoder is kept: only where queries that it never saw say that it is better than its base (ours).

Few dev queries cannot tell: of twenty, the mean gain in nDCG@10 has a standard error of five points. Where a head
trains, which takes seconds, it is therefore trained again without folds of the train queries, and each fold is asked of
the head that did not read it, until ENOUGH queries were asked. Otherwise dev queries tell: judged ones, or where none
are judged, pseudo-queries of held-out documents.

Shapes: Q queries, M embedding size, N documents, P pairs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.documents import Documents
from rayhier.dataset.holdout import hash_ids
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.model.adoption import MEASURE, Adoption, Source
from rayhier.search.exact import exact
from rayhier.train.encoder import EncoderPhase
from rayhier.train.examples import Examples
from rayhier.train.tower import HeadTower, Tower

RESULTS = 10
"""Number of results that nDCG@10 reads."""
ENOUGH = 300
"""Number of queries that tell what a training gains; fewer dev queries are helped by folds of the train queries."""
FOLDS, FEWEST = 5, 10
"""Folds of the train queries, and the fewest train queries that are divided."""
FOLD = "fold "
"""Beginning of the names of trainings on folds."""


@dataclass(frozen=True)
class Fold:
    """A part of the train queries, and the pairs of the others."""

    name: str
    examples: Examples
    query_F: Ints
    """Rows of the fold's queries."""
    queries: Queries


def folds(examples: Examples, results: Sequence[str]) -> Iterator[Fold]:
    """Divide train queries by a hash of their texts, and yield folds until ENOUGH queries were yielded.

    `results` [n] are the ids of the documents that rows belong to. A fold that would leave no pair is left out.
    """
    fold_Q = (hash_ids(list(examples.query_texts)) % FOLDS).astype(np.int64)
    query_P, yielded = examples.pair_P2[:, 0], 0
    for fold in range(FOLDS):
        inside_P = fold_Q[query_P] == fold
        if yielded >= ENOUGH or inside_P.all() or not inside_P.any():
            continue
        query_F = np.unique(query_P[inside_P])
        grades: dict[str, dict[str, int]] = {str(query): {} for query in query_F}
        for query, document in examples.pair_P2[inside_P].tolist():
            grades[str(query)][results[document]] = 1
        queries = Queries(list(grades), examples.query_QM[query_F], grades)
        yield Fold(f"{FOLD}{fold + 1}", replace(examples, pair_P2=examples.pair_P2[~inside_P]), query_F, queries)
        yielded += len(query_F)


def needs_folds(examples: Examples, dev: Queries) -> bool:
    """Return True if folds tell what training a head gains: few dev queries, and enough train queries to divide."""
    return len(dev) < ENOUGH and not examples.same and len(np.unique(examples.pair_P2[:, 0])) >= FEWEST


def decide(
    phase: EncoderPhase,
    dev: Queries,
    documents: Documents,
    source: Source,
    make: Callable[[Tower, Examples], EncoderPhase],
    run: Callable[[str, EncoderPhase], None],
) -> Adoption:
    """Decide, on every worker alike, whether the encoder that a phase has trained is kept.

    `dev` are the dev queries, of the kind `source`, and `documents` the documents, with base vectors. `make` makes a
    training like the phase's of another tower on other examples, and `run` carries it out under a name.
    """
    tower, examples = phase.tower, phase.examples
    if isinstance(tower, HeadTower) and needs_folds(examples, dev):
        adoption = Adoption.of("train queries in folds", *by_folds(tower, examples, documents, make, run))
    else:
        all_Q = np.arange(len(dev))
        adoption = Adoption.of(source, *_values(phase, phase.pairs.side("dev"), all_Q, dev, documents))
    agreed: Adoption = phase.learner.group.agree(adoption)
    return agreed


def by_folds(
    tower: HeadTower,
    examples: Examples,
    documents: Documents,
    make: Callable[[Tower, Examples], EncoderPhase],
    run: Callable[[str, EncoderPhase], None],
) -> tuple[Values, Values]:
    """Train a head without each fold; returns the measure of the folds' queries [q] by base and by trained encoders.

    Arguments are those of `decide`. Only the first worker's result counts.
    """
    parts = [(np.zeros(0), np.zeros(0))]
    for fold in folds(examples, documents.results):
        other = make(tower.anew(), fold.examples)
        run(fold.name, other)
        parts.append(_values(other, other.pairs.side("query"), fold.query_F, fold.queries, documents))
    base_Q, trained_Q = (np.concatenate(values) for values in zip(*parts, strict=True))
    return base_Q, trained_Q


def _values(
    phase: EncoderPhase, query_XM: Floats, row_Q: Ints, queries: Queries, documents: Documents
) -> tuple[Values, Values]:
    """Compute the measure of queries [q] by the base encoder and by a phase's; only the first worker's result counts.

    `query_XM` are trained vectors of all texts of the queries' side, of which the queries are the rows [q].
    """
    document_NM = phase.documents()
    if phase.learner.group.rank > 0 or not len(queries):
        return np.zeros(0), np.zeros(0)
    judge = Judge(queries, [MEASURE])
    ids, results = (pa.array(names, pa.string()) for names in (documents.ids, documents.results))
    base, trained = (
        judge.values(exact(query_QM, vector_NM, ids, results, RESULTS))[MEASURE]
        for query_QM, vector_NM in ((queries.vector_QM, documents.vector_NM), (query_XM[row_Q], document_NM))
    )
    return base, trained


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

"""Keep a trained encoder only if queries that training did not read find more with it (ours).

These queries search like queries of the built index: by vectors, and with BM25 if the index counts words. The queries
choose a weight of BM25 for each encoder. The measures with each weight also help to choose the weight of searches.

Fewer than ENOUGH dev queries cannot decide: the mean gain in nDCG@10 of twenty queries has a standard error of five
points. So the encoder is trained again without a fold of the train queries, and then searches for the queries of the
fold. Further folds follow until ENOUGH queries were used. With fewer than FEWEST train queries there are no folds. Then
judged dev queries decide, or else pseudo-queries. Pseudo-queries are searched by vectors alone, because they share
words with their documents. If a transformer trains, ENOUGH queries are needed without folds, or the base encoder stays.

Queries that ask the same (`dataset.families.alike`) are in one fold and count as one query.

Shapes: Q queries, M embedding size, N documents, K results, P pairs, W weights.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.documents import Documents
from rayhier.dataset.families import alike, some
from rayhier.dataset.families import folds as divided_by
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, relevant
from rayhier.model.adoption import MEASURE, Adoption, Source
from rayhier.search.segment.exact import exact
from rayhier.search.words.bm25 import Bm25Index
from rayhier.search.words.exact_hybrid import RESULTS, ExactHybrid
from rayhier.search.words.fusion_weight import WEIGHTS
from rayhier.search.words.fusion_weight import best as best_weight
from rayhier.spec.encoder import ENOUGH, FOLDS
from rayhier.train.contrast import Contrast
from rayhier.train.examples import Examples
from rayhier.train.group import WorkerGroup
from rayhier.train.tower import HeadTower, Side, Tower, divided

FEWEST = 10
"""Fewest train queries that are divided into folds."""
FOLD = "fold "
MOST_ASKED, TOGETHER = 1_000, 200
"""MOST_ASKED: most queries of dev or of a fold. TOGETHER: most queries that are searched together, to limit memory."""
MOST_COUNTED = 200_000
"""Largest number of documents whose words are counted. Larger corpora are searched by vectors alone."""


Asked = tuple[Values, Values, Ints]
"""Measures [w, q] of queries by the base and by the trained encoder, and each query's family [q]."""
NOTHING_ASKED: Asked = np.zeros((1, 0)), np.zeros((1, 0)), np.zeros(0, np.int64)


class Searches:
    def __init__(
        self, documents: Documents, words: Callable[[], Bm25Index] | None = None, *, cosines: bool = True
    ) -> None:
        """Take documents with base vectors, and a function that counts their words. None: search by vectors alone."""
        self.documents, self.cosines = documents, cosines
        self.ids, self.results = (pa.array(names, pa.string()) for names in (documents.ids, documents.results))
        self._count = words if len(documents.ids) <= MOST_COUNTED else None

    @cached_property
    def words(self) -> Bm25Index | None:
        return None if self._count is None else self._count()

    @property
    def mode(self) -> str:
        return "dense" if self._count is None else "hybrid"

    def values(self, queries: Queries, query_QM: Floats, document_NM: Floats) -> Values:
        """Compute nDCG@10 [w, q] of queries [q, m] with each of WEIGHTS. By vectors alone, W is 1."""
        parts = np.arange(len(queries)) // TOGETHER == np.arange(-(-len(queries) // TOGETHER))[:, None]
        group = WorkerGroup()
        values = group.each(lambda part_Q: self._values(queries.some(part_Q), query_QM[part_Q], document_NM), parts)
        return np.concatenate(values, axis=1) if values else np.zeros((1, 0))

    def _values(self, queries: Queries, query_QM: Floats, document_NM: Floats) -> Values:
        if self.words is None:
            ranking = exact(query_QM, document_NM, self.ids, self.results, RESULTS)
            return Judge(queries, [MEASURE]).values(ranking)[MEASURE][None]
        hybrid = ExactHybrid(self.words, document_NM, self.ids, self.results, cosines=self.cosines)
        return hybrid.values(queries, query_QM, MEASURE)


def at_best(value_WQ: Values) -> Values:
    return np.asarray(value_WQ[0] if len(value_WQ) == 1 else value_WQ[WEIGHTS.index(best_weight(value_WQ))])


@dataclass(frozen=True)
class Fold:
    name: str
    examples: Examples
    query_F: Ints
    queries: Queries
    family_F: Ints


def folds(examples: Examples, documents: Documents) -> Iterator[Fold]:
    """Divide judged train queries by families, and yield folds until ENOUGH families were yielded.

    A family here has only queries of equal text. A shared answer does not join queries, because people search for the
    same documents in other words. Training may gain from queries that share answers with the fold.
    """
    query_P, yielded = examples.pair_P2[:, 0], 0
    grades = dict[int, dict[str, int]]()
    for query, document in examples.pair_P2.tolist():
        grades.setdefault(query, {})[documents.results[document]] = 1
    asked = sorted(query for query in grades if examples.judged is None or query < examples.judged)
    query_A, texts = np.array(asked, dtype=np.int64), [examples.query_texts[query] for query in asked]
    family_A = alike(texts, [[] for _ in asked])[0]
    count = min(FOLDS, len(np.unique(family_A)))
    fold_A = divided_by(family_A, count, 0) if count > 1 else np.full(len(asked), FOLDS)
    for fold in range(FOLDS):
        inside_P = np.isin(query_P, query_A[fold_A == fold])
        if yielded >= ENOUGH or inside_P.all() or not inside_P.any():
            continue
        own = np.flatnonzero(fold_A == fold)
        own = own[some(family_A[own], [texts[row] for row in own], MOST_ASKED)]
        own_grades = {str(asked[row]): grades[asked[row]] for row in own}
        queries = Queries(list(own_grades), examples.query_QM[query_A[own]], own_grades, [texts[row] for row in own])
        others = replace(examples, pair_P2=examples.pair_P2[~inside_P])
        yield Fold(f"{FOLD}{fold + 1}", others, query_A[own], queries, family_A[own])
        yielded += len(np.unique(family_A[own]))


def needs_folds(examples: Examples, families: int) -> bool:
    query_Q = np.unique(examples.pair_P2[:, 0])
    judged = len(query_Q) if examples.judged is None else int((query_Q < examples.judged).sum())
    return families < ENOUGH and not examples.same and judged >= FEWEST


def decide(
    phase: Contrast,
    before: dict[str, Tensor],
    dev: Queries,
    searches: Searches,
    source: Source,
    make: Callable[[Tower, Examples], Contrast],
    run: Callable[[str, Contrast], None],
) -> Adoption:
    """Decide if the encoder that a phase has trained is kept. All workers decide alike.

    `before` are the weights before training. `make` makes the same training for a given tower and given examples. `run`
    runs a training under a name.
    """
    tower, examples = phase.tower, phase.examples
    texts = list(dev.texts or dev.ids)
    is_judged = source == "dev queries"  # pseudo-queries that are near each other share answers
    family_Q = alike(texts, [relevant(dev.grades[query]) if is_judged else [] for query in dev.ids])[0]
    families = len(np.unique(family_Q))
    if needs_folds(examples, families):
        source = "train queries in folds"
        base_WQ, trained_WQ, family_Q = by_folds(tower, before, examples, searches, make, run)
    else:
        tells = isinstance(tower, HeadTower) or families >= ENOUGH
        asked_Q = some(family_Q, texts, MOST_ASKED) & tells
        base_WQ, trained_WQ, family_Q = _values(
            phase, "dev", np.flatnonzero(asked_Q), dev.some(asked_Q), family_Q[asked_Q], searches
        )
    adoption = Adoption.of(source, at_best(base_WQ), at_best(trained_WQ), searches.mode, family_Q)
    if len(base_WQ) > 1:
        mean_W = (trained_WQ if adoption.adopted else base_WQ).mean(axis=1)
        measured = {f"{weight:g}": round(float(mean), 6) for weight, mean in zip(WEIGHTS, mean_W, strict=True)}
        adoption = adoption.model_copy(update={"measured": measured})
    agreed: Adoption = phase.learner.group.agree(adoption)
    return agreed


def by_folds(
    tower: Tower,
    before: dict[str, Tensor],
    examples: Examples,
    searches: Searches,
    make: Callable[[Tower, Examples], Contrast],
    run: Callable[[str, Contrast], None],
) -> Asked:
    parts, trained = [NOTHING_ASKED], weights(tower.module)
    for fold in folds(examples, searches.documents):
        restore(tower.module, before)
        other = make(tower, fold.examples)
        run(fold.name, other)
        parts.append(_values(other, "query", fold.query_F, fold.queries, fold.family_F, searches))
    restore(tower.module, trained)
    base_WQ, trained_WQ, family_Q = (
        np.concatenate(arrays[1:] or arrays, axis=-1) for arrays in zip(*parts, strict=True)
    )
    return base_WQ, trained_WQ, family_Q


def _values(phase: Contrast, side: Side, row_Q: Ints, queries: Queries, family_Q: Ints, searches: Searches) -> Asked:
    if not len(queries):
        return NOTHING_ASKED
    group, document_NM = phase.learner.group, phase.documents()
    query_QM = divided(lambda rows: phase.tower.infer(side, rows), row_Q, queries.vector_QM.shape[1], group)
    base_WQ = searches.values(queries, queries.vector_QM, searches.documents.vector_NM)
    return base_WQ, searches.values(queries, query_QM, document_NM), family_Q


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters() if value.requires_grad}


@torch.no_grad()
def restore(module: nn.Module, before: dict[str, Tensor]) -> None:
    for name, value in module.named_parameters():
        if name in before:
            value.copy_(before[name])


def is_changed(module: nn.Module, before: dict[str, Tensor]) -> bool:
    return any(not torch.equal(value, before[name]) for name, value in module.named_parameters() if name in before)

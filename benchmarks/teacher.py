"""A cross-encoder whose scores teach the encoder of a fold: a loss term beside contrast's.

The cross-encoder is trained as specs/scifact-axn.yaml says, on the train pairs of the other folds alone. It then scores
each of these queries with its answer and with wrong documents that the base encoder or BM25 ranks high. The encoder
learns the softmax of these scores, by Kullback-Leibler divergence.

Shapes: P pairs, N pairs of a step, D documents of a pair, the answer first, M embedding size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import cache
from benchmarks.axn.world import SPEC
from benchmarks.training import train
from rayhier.arrays import Floats, Ints
from rayhier.dataset.documents import Documents
from rayhier.model.cross_encoder import load_cross_encoder
from rayhier.model.precision import resolve
from rayhier.scores.scorer import read_pairs
from rayhier.spec import load
from rayhier.spec.train import ContrastTraining
from rayhier.train.caching import Ask
from rayhier.train.contrast.batch import Part
from rayhier.train.contrast.contrast import Contrast
from rayhier.train.cross_encoder.groups import Groups
from rayhier.train.cross_encoder.phase import Reading
from rayhier.train.encoder import Measure
from rayhier.train.examples import Examples
from rayhier.train.tower import Tower

BASE, BM25 = 6, 2
"""Wrong documents of a pair that the cross-encoder scores: the base encoder's first and BM25's first."""


@dataclass(frozen=True)
class Lessons:
    """Documents of each training pair, the answer first, and the cross-encoder's scores of them."""

    document_PD: Ints
    """Rows; -1 where a pair has fewer."""
    score_PD: Floats


def lessons(examples: Examples, documents: Documents, texts: list[str], model: Path, folder: Path) -> Lessons:
    """Train a cross-encoder on examples and score their documents, now or in an earlier run that a folder keeps."""
    reads = load(SPEC, []).cross_encoder
    assert reads is not None
    assert reads.train is not None
    training = reads.train

    def make() -> dict[str, Floats | Ints]:
        groups = Groups(examples, documents, texts, training.groups, training.seed)
        cpu, passed = torch.device("cpu"), 0

        def last(_: object) -> dict[str, float]:  # the last epoch is kept: no query judges the cross-encoder
            nonlocal passed
            passed += 1
            return {"dev": float(passed)}

        reader = load_cross_encoder(model, reads.head, seed=training.seed)
        train(Reading(reader, [groups], reads, training, last, resolve("auto", cpu)), folder / "reader.safetensors")
        document_PD = listed(examples.pair_P2[:, 1], groups.base_PT[:, :BASE], groups.bm25_PT[:, :BM25])
        pair, place = np.nonzero(document_PD >= 0)
        query_X, row_X = examples.pair_P2[pair, 0].tolist(), document_PD[pair, place].tolist()
        score_PD = np.full(document_PD.shape, -np.inf, np.float32)
        score_PD[pair, place] = read_pairs(
            reader,
            [(examples.query_texts[query], texts[row]) for query, row in zip(query_X, row_X, strict=True)],
            reads,
        )
        return {"document_PD": document_PD, "score_PD": score_PD}

    return Lessons(**cache.kept(folder / "lessons.npz", make))


def listed(answer_P: Ints, *wrong_PD: Ints) -> Ints:
    """List the answer of each pair, then its wrong documents, each once: rows [p, d], -1 in place of a repetition.

    >>> listed(np.array([7]), np.array([[1, 2]]), np.array([[2, 3]])).tolist()
    [[7, 1, 2, -1, 3]]
    """
    document_PD = np.concatenate([answer_P[:, None], *wrong_PD], axis=1)
    for place in range(1, document_PD.shape[1]):
        again_P = (document_PD[:, :place] == document_PD[:, place, None]).any(axis=1)
        document_PD[again_P, place] = -1
    return document_PD


class Lesson:
    """A loss term: the divergence of the encoder's softmax over each pair's documents from the cross-encoder's."""

    def __init__(self, query_N: Ints, document_ND: Ints, score_ND: Floats, temperature: float, weight: float) -> None:
        """Read queries, rows [n], and their documents, rows [n, d], -1 where there are fewer; scores are -inf there."""
        self.query_N, self.document_ND, self.temperature, self.weight = query_N, document_ND, temperature, weight
        self.score_ND = torch.from_numpy(score_ND)

    @property
    def asks(self) -> list[Ask]:
        """The rows that are encoded: queries and all their documents."""
        return [("query", self.query_N), ("document", np.maximum(self.document_ND, 0).reshape(-1))]

    def loss(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute the weighted mean divergence of the pairs."""
        query_NM, document_XM = vectors
        document_NDM = document_XM.reshape(*self.document_ND.shape, -1)
        cosine_ND = torch.einsum("nm,ndm->nd", query_NM, document_NDM)
        return self.weight * divergence(cosine_ND / self.temperature, self.score_ND.to(cosine_ND))


def divergence(score_ND: Tensor, teacher_ND: Tensor) -> Tensor:
    """Compute the mean over rows of KL(softmax(teacher) ‖ softmax(score)), without columns where a teacher has -inf.

    >>> divergence(torch.zeros(1, 3), torch.tensor([[2.0, 2.0, -torch.inf]]))
    tensor(0.)
    """
    left_ND = teacher_ND.isneginf()
    log_ND = F.log_softmax(score_ND.masked_fill(left_ND, -torch.inf), dim=1).masked_fill(left_ND, 0.0)
    teacher_log_ND = F.log_softmax(teacher_ND, dim=1)
    share_ND = teacher_log_ND.exp()
    return (share_ND * (teacher_log_ND.masked_fill(left_ND, 0.0) - log_ND)).sum(dim=1).mean()


class Taught(Contrast):
    """Contrast beside which a cross-encoder teaches, in one process."""

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        spec: ContrastTraining,
        seed: int,
        measure: Measure,
        learned: Lessons,
        weight: float,
    ) -> None:
        super().__init__(tower, examples, spec, seed, measure)
        self.learned, self.weight = learned, weight

    def parts(self, rows: Ints, generator: np.random.Generator) -> list[Part]:
        """Make the terms of a step's loss: contrast's, and the divergence from the cross-encoder."""
        document_ND, score_ND = self.learned.document_PD[rows], self.learned.score_PD[rows]
        query_N = self.examples.pair_P2[rows, 0]
        lesson = Lesson(query_N, document_ND, score_ND, self.spec.temperature, self.weight)
        return [*super().parts(rows, generator), lesson]

"""Run the training phases that a spec asks for: the only place where training methods are chosen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from rayhier.arrays import Floats
from rayhier.dataset.documents import Documents
from rayhier.dataset.holdout import Holdout, holdout_size, load_dev
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking
from rayhier.model.router import TrainedRouter
from rayhier.search.exact import exact
from rayhier.spec import JobSpec
from rayhier.spec.router import EhiRouting, LearnedIvfRouting
from rayhier.spec.train import ContrastTraining, EhiTraining
from rayhier.storage.artifact import Artifact
from rayhier.train.contrast.contrast import Contrast
from rayhier.train.data import judged_pairs
from rayhier.train.dev import ExactMeasure
from rayhier.train.ehi.dev import DevMeasure
from rayhier.train.ehi.joint import Joint
from rayhier.train.examples import Examples
from rayhier.train.learned_ivf.teacher import build_teacher
from rayhier.train.loop import Phase
from rayhier.train.tower import Tower


@dataclass(frozen=True)
class Material:
    """Data that every training method reads."""

    documents: Documents
    examples: Examples
    dev: Queries
    phases: Mapping[str, int]
    """Phases that the spec asks for, name -> epochs."""
    sampled: bool
    """Whether the documents are only a sample of the corpus that the leaves are made for."""


def train(
    spec: JobSpec, seed: int, tower: Tower, material: Material, run: Callable[[str, Phase], None]
) -> TrainedRouter:
    """Make the phases of a spec's training and let `run` run each in turn, by name; returns the trained router."""
    examples, dev, documents = material.examples, material.dev, material.documents
    match spec.train, spec.router:
        case EhiTraining() as training, EhiRouting() as router:
            joint = Joint(tower, examples, router, training, seed, DevMeasure(dev, documents.results))
            run("joint", joint)
            return joint.router
        case ContrastTraining() as training, LearnedIvfRouting() as router:
            contrast = Contrast(tower, examples, training, seed, ExactMeasure(dev, documents))
            if "encoder" in material.phases:
                run("encoder", contrast)
            dev_P2 = judged_pairs(dev, documents).pair_P2
            teacher = build_teacher(spec, router, contrast, examples, dev_P2, sampled=material.sampled)
            run("router", teacher)
            return teacher.router
    raise AssertionError(f"{spec.train.type} with {spec.router.type}: refused by the spec")


def dev_queries(corpus: Artifact, vectors: Artifact, documents: Documents) -> Queries:
    """Load the dev queries; where none has a relevant document, held-out documents that search for their neighbours."""
    ids, results = (pa.array(names, pa.string()) for names in (documents.ids, documents.results))

    def holdout() -> Holdout:
        return Holdout.of(ids, results, documents.vector_NM, holdout_size(len(documents.ids)))

    def nearest(query_QM: Floats, k: int) -> Ranking:
        return exact(query_QM, documents.vector_NM, ids, results, k)

    return load_dev(corpus, vectors, holdout, nearest)

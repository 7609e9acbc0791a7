"""Run the training phases of a job. Only this module chooses the training method by the spec."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.dataset.documents import Documents, document_texts
from rayhier.dataset.generated import load_generated, split_generated
from rayhier.dataset.holdout import Holdout, holdout_size, load_dev, load_judged
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking
from rayhier.dataset.spans import Spans, load_spans, span_queries
from rayhier.model.adoption import Adoption, Source
from rayhier.model.router import TrainedRouter
from rayhier.search.segment.exact import exact
from rayhier.search.words.bm25 import Bm25Index
from rayhier.spec import JobSpec
from rayhier.spec.corpus import Language
from rayhier.spec.router import EhiRouting, HceRouting, LearnedIvfRouting, RetreeverRouting
from rayhier.spec.train import ContrastTraining, EhiTraining, HceTraining, InfoNce, RetreeverTraining
from rayhier.storage.artifact import Artifact
from rayhier.train.adopt import Searches, decide, is_changed, restore, weights
from rayhier.train.contrast import Contrast
from rayhier.train.data import judged_pairs
from rayhier.train.dev_measures import ExactMeasure, Measure
from rayhier.train.ehi import DevMeasure, Joint
from rayhier.train.examples import Examples
from rayhier.train.hce import Hce, node_router
from rayhier.train.learned_ivf.router_phase import build_router_phase
from rayhier.train.loop import Phase
from rayhier.train.pseudo import pseudo_pairs
from rayhier.train.retreever.dev import SizesMeasure
from rayhier.train.retreever.grow import grow
from rayhier.train.retreever.matching import Read
from rayhier.train.tower import Tower
from rayhier.train.whiten import start_whitened


@dataclass(frozen=True)
class Material:
    documents: Documents
    examples: Examples
    dev: Queries
    phases: Mapping[str, int]
    spans: Spans | None
    """Embedded pseudo-queries that do not replace dev queries. None if there are no pseudo-queries."""
    titled: Callable[[], pa.Table]
    read: Read | None = None
    held_N: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    source: Source = "dev queries"
    language: Language = "english"


def train(
    spec: JobSpec, seed: int, tower: Tower, material: Material, run: Callable[[str, Phase], None]
) -> tuple[TrainedRouter, Adoption | None]:
    """Make the training phases of a spec, and call `run` with each phase's name and the phase, in order.

    Returns the router, and the decision to keep the trained encoder or not. None if there was nothing to decide.
    """
    examples, dev, documents = material.examples, material.dev, material.documents
    answers = examples.answers(documents.results)
    exact_measure = ExactMeasure(dev, documents, answers)
    before, is_judged = weights(tower.module), material.source == "dev queries"

    def adopted(phase: Contrast, make: Callable[[Tower, Examples], Contrast]) -> Adoption | None:
        run("encoder", phase)
        if spec.encoder.adopt == "always" or not is_changed(tower.module, before):
            return None

        def words() -> Bm25Index:
            return Bm25Index(document_texts(material.titled()), material.language)

        counted = words if spec.index.words and is_judged else None
        searches = Searches(documents, counted, cosines=spec.encoder.similarity == "cosine")
        adoption = decide(phase, before, dev, searches, material.source, make, run)
        if not adoption.adopted:
            restore(tower.module, before)
            phase.learner.version += 1
        return adoption

    def learned_ivf(trained: Contrast, router: LearnedIvfRouting) -> TrainedRouter:
        dev_P2 = judged_pairs(dev, documents).pair_P2
        router_phase = build_router_phase(spec, router, trained, examples, dev_P2)
        run("router", router_phase)
        return router_phase.router

    def make(training: InfoNce, tower: Tower, examples: Examples) -> Contrast:
        return encoder_phase(training, tower, examples, material.spans, material.titled, seed, exact_measure)

    match spec.train, spec.router:
        case EhiTraining() as training, EhiRouting() as router:
            joint = Joint(tower, examples, router, training, seed, DevMeasure(dev, documents.results, answers))
            run("joint", joint)
            return joint.router, None
        case (ContrastTraining() | HceTraining()) as training, LearnedIvfRouting() as router:
            phase = make(training, tower, examples)
            if "encoder" not in material.phases:
                restore(tower.module, before)  # a head may be whitened
                return learned_ivf(phase, router), None
            adoption = adopted(phase, partial(make, training)) if phase.teaches else None
            return learned_ivf(phase, router), adoption
        case HceTraining() as training, HceRouting():
            if isinstance(hce := make(training, tower, examples), Hce):
                run("encoder", hce)
                return node_router(hce), None  # leaves are the nodes that were trained with the encoder
        case RetreeverTraining() as training, RetreeverRouting() as router:
            contrast, adoption = partial(make, training.contrast), None
            if "encoder" in material.phases:
                adoption = adopted(contrast(tower, examples), contrast)
            measure = SizesMeasure(dev, documents, answers, router.leaves)
            grown = grow(tower, examples, router, training, seed, measure, run, material.read, material.held_N)
            return grown, adoption
    raise AssertionError(f"{spec.train.type} with {spec.router.type}: refused by the spec")


def encoder_phase(
    training: InfoNce,
    tower: Tower,
    examples: Examples,
    spans: Spans | None,
    titled: Callable[[], pa.Table],
    seed: int,
    measure: Measure,
) -> Contrast:
    """Make the training of an encoder by pairs and pseudo-queries. Pseudo-queries may whiten a head first."""
    pseudo = None
    if training.draws is not None:
        pseudo = pseudo_pairs(training.draws, tower, spans, titled)
        if training.whitens:
            start_whitened(tower, spans, measure)
    if isinstance(training, HceTraining):
        return Hce(tower, examples, pseudo, training, seed, measure)
    return Contrast(tower, examples, pseudo, training, seed, measure)


def dev_and_spans(
    corpus: Artifact, vectors: Artifact, documents: Documents, generated: Artifact | None = None
) -> tuple[Queries, Spans | None]:
    """Load the dev queries, or queries that replace missing dev queries, and the pseudo-queries to train with."""
    spans = load_spans(vectors, documents.ids)
    judged = load_judged(corpus, vectors)
    if generated is not None and not judged.answered:
        return split_generated(load_generated(generated, vectors))[0], spans
    if spans is not None and len(spans) and not judged.answered:
        return span_queries(spans, documents.ids, documents.results)
    ids, results = (pa.array(names, pa.string()) for names in (documents.ids, documents.results))

    def holdout() -> Holdout:
        return Holdout.of(ids, results, documents.vector_NM, holdout_size(len(documents.ids)))

    def nearest(query_QM: Floats, k: int) -> Ranking:
        return exact(query_QM, documents.vector_NM, ids, results, k)

    return load_dev(corpus, vectors, holdout, nearest), spans

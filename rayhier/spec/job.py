"""The spec of a job: all sections, and the rules by which their values fit together."""

import re
from typing import Annotated, Any, Self, get_args

from pydantic import Field, field_validator, model_validator

from rayhier.spec.base import Section
from rayhier.spec.cluster import ClusterSpec
from rayhier.spec.corpus import CorpusSpec
from rayhier.spec.cross_encoder import CrossEncoderSpec, FactorKind, ScoresSpec
from rayhier.spec.encoder import EncoderSpec
from rayhier.spec.errors import InputError
from rayhier.spec.evaluate import LISTED, UNFILTERED, Baseline, EvaluateSpec
from rayhier.spec.filter import YAML_WORDS, Filter, parse
from rayhier.spec.index import SPILLED, IndexSpec
from rayhier.spec.router import EhiRouting, HceRouting, LearnedIvfRouting, RetreeverRouting, RouterSpec
from rayhier.spec.router.tree import TreeSpec
from rayhier.spec.search import (
    TAUGHT_WEIGHT,
    UNTAUGHT_WEIGHT,
    SearchSpec,
)
from rayhier.spec.track import TrackSpec
from rayhier.spec.train import ContrastTraining, HceTraining, InfoNce, RetreeverTraining, TrainSpec
from rayhier.spec.train.retreever import STARTS

PAIRS = (
    ("contrast", "learned_ivf"),
    ("ehi", "ehi"),
    ("hce", "learned_ivf"),
    ("hce", "hce"),
    ("retreever", "retreever"),
)
"""Types of `train` and `router` that fit together. A missing section gets the type of the first fitting pair."""


class JobSpec(Section):
    """The spec of a job, read from its YAML file: everything that the job does."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Name of the job, shown in reports. No fingerprint contains the name: jobs with different names share results."""
    workdir: Annotated[str, Field(min_length=1)]
    """Place of all results: a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX. No fingerprint contains this place."""
    corpus: CorpusSpec
    encoder: EncoderSpec
    train: TrainSpec = ContrastTraining(type="contrast")
    """Training of the encoder, and for most types of the router too. By default, the type that fits `router`."""
    router: RouterSpec = LearnedIvfRouting(type="learned_ivf")
    """Number of leaves, and the model that routes texts to leaves. By default, the type that fits `train`."""
    index: IndexSpec = IndexSpec()
    cross_encoder: CrossEncoderSpec | None = None
    """The model that reads a query and a document together and scores the pair. By default, nothing is re-ranked."""
    scores: ScoresSpec | None = None
    """Pairs that the cross-encoder scores ahead of searches. By default, none."""
    search: SearchSpec = SearchSpec()
    evaluate: EvaluateSpec = EvaluateSpec()
    cluster: ClusterSpec = ClusterSpec()
    track: TrackSpec | None = None
    """Tracker that gets the measures of training and evaluation. Every model has TensorBoard's files in any case."""

    @field_validator("workdir")
    @classmethod
    def _place(cls, value: str) -> str:
        if "://" in value and not re.fullmatch(r"(s3|gs)://[^/]+(/.*)?", value):
            raise ValueError("a path on this machine, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
        return value

    @model_validator(mode="before")
    @classmethod
    def _with_partner(cls, mapping: Any) -> Any:
        return with_partner(mapping) if isinstance(mapping, dict) else mapping

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        train, router = self.train.type, self.router.type
        if (train, router) not in PAIRS:
            trains = ", ".join(objective for objective, router_type in PAIRS if router_type == router)
            routers = ", ".join(router_type for objective, router_type in PAIRS if objective == train)
            raise InputError(
                f"train.type: got {train!r} with router.type {router!r}; allowed: {trains}, or router.type {routers}"
            )
        if self.search.how == "level":
            self._level_fits()
        if self.encoder.documents is not None and self.router.reads == "tokens":
            raise InputError(
                f"encoder.documents: got {self.encoder.documents} with router.splits attention, which reads the tokens "
                "of one encoder; allowed: null, or router.splits linear or mlp"
            )
        self._filter_fits()
        self._words_fit()
        self._reranking_fits()
        self._keys_count()
        if isinstance(self.train, InfoNce):
            self._pseudo_queries_fit(self.train)
        if isinstance(self.train, HceTraining):
            self._hce_fits(self.train)
        if isinstance(self.train, RetreeverTraining) and isinstance(self.router, RetreeverRouting):
            allowed = STARTS[self.router.splits]
            if self.train.start not in allowed:
                got = f"got {self.train.start!r} with router.splits {self.router.splits}"
                raise InputError(f"train.start: {got}; allowed: {', '.join(allowed)}")
            if self.train.objective == "documents" and self.encoder.transformer_part is not None:
                raise InputError(
                    f"encoder.train: got {self.encoder.train!r} with train.objective documents, which trains no "
                    "encoder here; allowed: head, none"
                )
        elif self.encoder.train == "none" and self.train.type != "contrast":
            raise InputError(
                f"encoder.train: got 'none' with train.type {train}, which trains it; allowed: head, last_layer, all, "
                "or train.type contrast or retreever"
            )
        return self

    def _filter_fits(self) -> None:
        unable = [name for name in UNFILTERED if name in self.evaluate.baselines]
        if self.measured is not None and unable:
            able = ", ".join(name for name in get_args(Baseline) if name not in UNFILTERED)
            raise InputError(
                f"evaluate.baselines: got {unable[0]!r} with evaluate.filter, which it cannot apply; allowed: {able}"
            )

    def _words_fit(self) -> None:
        if self.index.words:
            return
        if self.search.mode in ("bm25", "hybrid"):
            raise InputError(f"index.words: got false with search.mode {self.search.mode}; allowed: true")
        _refuse("search", self.search, "hybrid", where="if index.words is true")

    def _level_fits(self) -> None:
        if not isinstance(self.router, RetreeverRouting):
            raise InputError(
                f"search.how: got 'level' with router.type {self.router.type}; allowed: leaves, or type retreever"
            )
        level, depth = self.search.at_level(self.router.depth), self.router.depth
        if level > depth:
            raise InputError(f"search.level: got {level}; allowed: at most {depth}, router.depth")

    @property
    def factors(self) -> FactorKind | None:
        return None if self.scores is None else self.scores.factors

    def _reranking_fits(self) -> None:
        if self.scores is not None and self.cross_encoder is None:
            raise InputError("scores: got a section, but no cross_encoder; allowed: with cross_encoder")
        rerank = self.search.reranking
        if rerank is None:
            return
        if self.cross_encoder is None:
            raise InputError(
                f"search.rerank.type: got {rerank.type!r}, but no cross_encoder; allowed: none, or with cross_encoder"
            )
        if rerank.type == "axn" and rerank.fit == "lstsq" and self.factors is None:
            raise InputError(
                "search.rerank.fit: got 'lstsq', but no factors, which match scores to the base's range; allowed: "
                "ridge, or with scores.factors"
            )
        if rerank.type == "adacur" and (self.scores is None or self.scores.count != "all"):
            raise InputError(
                "search.rerank.type: got 'adacur', whose anchors are queries with scores of all documents; allowed: "
                "rnr, axn, or with scores.count all"
            )

    def _pseudo_queries_fit(self, train: InfoNce) -> None:
        if self.encoder.transformer_part is None and train.pseudo_queries.source == "simcse":
            raise InputError(
                "train.pseudo_queries.source: got 'simcse' with encoder.train head, whose vectors no dropout changes; "
                "allowed: titles and spans, or encoder.train last_layer or all"
            )
        drawn, most = train.pseudo_queries, self.encoder.max_length
        draws_spans = drawn.source == "spans" or drawn.changed("length")
        if train.objective != "supervised" and draws_spans and drawn.length >= most:
            raise InputError(
                f"train.pseudo_queries.length: got {drawn.length} with encoder.max_length {most}, which leaves no "
                f"document longer than a span; allowed: at most {most - 1}"
            )

    def _hce_fits(self, train: HceTraining) -> None:
        if not train.sees_tree and not isinstance(self.router, HceRouting):
            where = "if hierarchy or siblings is above 0, or router.type is hce"
            if train.tree.levels != 0:
                _refuse("train", train, "tree", where=where)
            _refuse("train.tree", train.tree, "branching", "recluster", where="if levels is not 0")
        if isinstance(self.router, HceRouting) and train.tree.levels == 0:
            raise InputError("train.tree.levels: got 0 with router.type hce, so without leaves; allowed: 1 or more")

    def _keys_count(self) -> None:
        """Raise InputError if a key of a section has no effect because of another section's keys."""
        if not self.trains_encoder_alone:
            alone = "if the encoder trains before the router: not with train.type ehi, router.type hce or train none"
            _refuse("encoder", self.encoder, "adopt", where=alone)
        if self.leaves_per_document == 1 and not any(name in LISTED for name in self.evaluate.baselines):
            _refuse("evaluate", self.evaluate, "lists", where=f"if there is one of the baselines {', '.join(LISTED)}")

    @property
    def trains_encoder_alone(self) -> bool:
        """Return True if the encoder trains before the router, so that the base encoder may be kept instead."""
        return self.train.type != "ehi" and self.router.type != "hce" and self.encoder.train != "none"

    @property
    def adopts_by_words(self) -> bool:
        """Return True if BM25 helps to rank the queries that decide if the trained encoder is kept."""
        judged = self.corpus.names_judgements
        return judged and self.trains_encoder_alone and self.encoder.adopt == "auto" and self.index.words

    @property
    def measured(self) -> Filter | None:
        """The filter that chooses the documents to evaluate. None if all documents are evaluated."""
        condition = self.evaluate.filter
        return None if condition is None else parse(condition, self.corpus.field_types, "evaluate.filter", YAML_WORDS)

    @property
    def chooses_weight(self) -> bool:
        """Return True if dev queries choose BM25's weight in hybrid searches for the trained model."""
        hybrid, judged = self.search.hybrid, self.corpus.names_judgements
        return judged and self.index.words and hybrid.fuse == "sum" and hybrid.weight == "auto"

    @property
    def measures_words(self) -> bool:
        """Return True if an evaluation measures BM25, alone and with vectors. With `search.mode` dense, none does."""
        return self.index.words and self.search.mode != "dense"

    @property
    def chooses_beside(self) -> bool:
        """Return True if dev queries choose `cross_encoder.beside`, the weight of the search's own score."""
        reads, judged = self.cross_encoder, self.corpus.names_judgements
        return judged and self.search.reranking is not None and reads is not None and reads.beside == "auto"

    @property
    def chooses_beam(self) -> bool:
        """Return True if queries choose the beam: dev queries, or documents if there are few dev queries."""
        return self.search.recall is not None

    @property
    def chooses_precision(self) -> bool:
        """Return True if dev queries choose the number format in which queries are encoded."""
        return self.corpus.names_judgements and self.encoder.precision == "auto"

    @property
    def calibrates(self) -> bool:
        """Return True if queries that training did not read choose any setting for a built index."""
        return self.chooses_beam or self.chooses_weight or self.chooses_beside or self.chooses_precision

    def settled(self, weight: float | None) -> Self:
        """Return the spec with a fixed mode and weight of searches in place of `auto`. None means the usual weight."""
        usual = TAUGHT_WEIGHT if self.corpus.names_judgements else UNTAUGHT_WEIGHT
        search = self.search.settled(usual if weight is None else weight, words=self.index.words)
        return self.model_copy(update={"search": search})

    @property
    def leaves_per_document(self) -> int:
        most = self.index.leaves_per_document
        if most != "auto":
            return most
        return 2 if self.router.spills else 1

    @property
    def rows_per_document(self) -> float:
        return 1 + (self.leaves_per_document - 1) * (SPILLED if self.router.spills else 1)

    @property
    def encodes_again(self) -> bool:
        """Return True if routing encodes texts again, because it needs more than the base encoder's stored vectors."""
        return self.encoder.transformer_part is not None or self.router.reads == "tokens"

    def phases(self, pairs: int, documents: int) -> dict[str, int]:
        """Return the phases of training in order, name -> epochs, for numbers of judged pairs and of documents."""
        phases = self.train.phases(pairs, documents) | self.router.phases(supervised=pairs > 0)
        left_out = [
            *(["encoder"] if self.encoder.train == "none" else []),
            *(["adapter"] if self.router.reads == "tokens" else []),
        ]
        return {name: epochs for name, epochs in phases.items() if name not in left_out}

    def leaves(self, documents: int) -> int:
        match self.train, self.router:
            case HceTraining() as training, HceRouting():
                return training.leaves(documents)
            case _, LearnedIvfRouting() | EhiRouting() as router:
                return router.leaves(documents)
            case _, RetreeverRouting() as router:
                return router.leaves
        raise AssertionError("refused by the spec")

    def check_leaves(self, documents: int) -> None:
        """Raise InputError if the corpus has fewer documents than the router has leaves, or than training needs."""
        self.train.check_documents(documents)
        leaves = self.leaves(documents)
        if leaves > documents and isinstance(self.router, TreeSpec):
            raise InputError(
                f"router.branching: got {self.router.branching}, {leaves} leaves; allowed: at most as many leaves as "
                f"documents ({documents})"
            )
        if leaves > documents and isinstance(self.router, RetreeverRouting):
            raise InputError(
                f"router.depth: got {self.router.depth}, {leaves} leaves; allowed: at most as many leaves as documents "
                f"({documents})"
            )


def _refuse(name: str, section: Section, *keys: str, where: str) -> None:
    """Raise InputError if a named key is not the default. `where` says when other values have an effect."""
    if changed := section.changed(*keys):
        value = getattr(section, changed[0])
        shown = "settings" if isinstance(value, Section) else repr(value)
        raise InputError(f"{name}.{changed[0]}: got {shown}; allowed: the default, others only {where}")


def with_partner(given: dict[str, Any]) -> dict[str, Any]:
    """Add a missing `type` of section `train` or `router` to a spec as read: the type that fits the other section.

    >>> with_partner({"router": {"type": "ehi"}, "train": {"epochs": 5}})["train"]
    {'epochs': 5, 'type': 'ehi'}
    """
    sections = {name: given.get(name) or {} for name in ("train", "router")}
    if not all(isinstance(section, dict) for section in sections.values()):
        return given
    types = [section.get("type") for section in sections.values()]
    fitting = (
        pair for pair in PAIRS if all(kind in (None, partner) for kind, partner in zip(types, pair, strict=True))
    )
    partners = next(fitting, PAIRS[0])
    named = zip(sections.items(), partners, strict=True)
    return given | {name: section | {"type": section.get("type") or partner} for (name, section), partner in named}

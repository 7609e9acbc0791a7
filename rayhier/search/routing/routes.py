"""A trained model that encodes and routes in searches. Shapes: Q queries, M embedding size, B leaves visited."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self, Union

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.embed import onnx
from rayhier.embed.onnx import Computed, OnnxEncoder
from rayhier.extras import needs
from rayhier.model.encoded import Encoded
from rayhier.model.layers import load_head
from rayhier.model.opened_router import LearnedIvf, OpenedRouter, Tree, open_router
from rayhier.progress import say
from rayhier.search.request.request import Queries
from rayhier.search.routing.chosen_beam import Calibration, ChosenBeam
from rayhier.search.routing.coded_router import first_pass_before
from rayhier.search.routing.query_precision import QueryPrecision
from rayhier.search.segment.level_similarity import FlatQuery, LevelSimilarity
from rayhier.spec import InputError, JobSpec
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import current
from rayhier.storage.artifact import Artifact
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.model_layout import Role, query_folder
from rayhier.storage.paths import Location
from rayhier.threads import get_threads, set_threads

if TYPE_CHECKING:
    from rayhier.embed.encode import TextEncoder

SearchEncoder = Union[OnnxEncoder, "TextEncoder"]
warn = cache(say)  # once in a process


def search_encoder(
    folder: Path, spec: EncoderSpec, precision: Computed = "float32", threads: int | None = None
) -> SearchEncoder:
    """Open an encoder's ONNX export. If int8 is unreadable, open float32, or else torch. InputError without torch."""
    if (folder / onnx.FOLDER / onnx.MODELS[precision]).is_file():
        try:
            return OnnxEncoder(folder, spec, threads or get_threads(), precision)
        except InputError as error:
            if precision == "int8":
                warn(f"warning: {error}. Queries are encoded in float32")
                return search_encoder(folder, spec, threads=threads)
            if find_spec("torch") is None:
                raise
            warn(f"warning: {error}. torch encodes texts")
    needs("encoder: it has no ONNX export, so encoding texts", "torch", "transformers")
    from rayhier.embed.encode import TextEncoder

    set_threads(threads or get_threads())
    return TextEncoder(folder, spec.model_copy(update={"precision": "float32"}))


class Model:
    """A trained encoder and its router, as searches use them."""

    def __init__(
        self,
        router: OpenedRouter,
        text_encoder: Callable[[], SearchEncoder],
        spec: JobSpec,
        head: Callable[[Floats], Floats] | None = None,
        calibration: Calibration | None = None,
        query_encoder: Callable[[], SearchEncoder] | None = None,
    ) -> None:
        """Take a router, functions that open encoders, and what the model knows of queries.

        `head` maps stored base vectors to trained vectors. None if the transformer was trained too, so that texts must
        be encoded. `calibration` belongs to the index, and is None if no queries chose the beam. `query_encoder` opens
        the encoder of queries if it differs from the encoder of documents.
        """
        self.router, self.spec, self._open, self._head = first_pass_before(router), spec, text_encoder, head
        self.calibration, self._open_for_queries = calibration, query_encoder

    @classmethod
    def open(
        cls,
        model: Artifact,
        spec: JobSpec,
        calibration: Artifact | None = None,
        leaf_map: LeafMap | None = None,
        encoder: Callable[[Path, EncoderSpec], SearchEncoder] | None = None,
    ) -> Self:
        """Open a published model with its router, or the router of the version `leaf_map`. Encoders load when used."""
        folder = model.local("encoder")
        head = load_head(folder) if spec.encoder.transformer_part is None else None
        revised = None if leaf_map is None else leaf_map.router()
        router = open_router(revised or model.local("router"))
        chosen = Calibration.open(calibration) if calibration is not None and spec.chooses_beam else None
        precision = None if calibration is None else QueryPrecision.open(calibration)
        in_int8 = precision is not None and precision.chosen == "int8"
        search = partial(search_encoder, threads=get_threads())
        opens = partial(encoder or search, folder, spec.encoder)
        has_own, precision_of_queries = spec.encoder.documents is not None, "int8" if in_int8 else "float32"
        of_queries = partial(search, model.local(query_folder(spec.encoder)), spec.encoder, precision_of_queries)
        for_queries = cache(of_queries) if in_int8 or has_own else None
        return cls(router, cache(opens), spec, head, chosen, for_queries)

    @classmethod
    def of_workdir(cls, workdir: Location, now: Current, leaf_map: LeafMap | None = None) -> Self:
        """Open a workdir's published model, with the router of a version. InputError if a file is not as published."""
        artifact = current.artifact(workdir, now, "model")
        artifact.verify()
        calibrated = now.spec.chooses_beam or "calibration" in now.artifacts
        calibration = current.artifact(workdir, now, "calibration") if calibrated else None
        return cls.open(artifact, now.spec, calibration=calibration, leaf_map=leaf_map)

    def with_router(self, folder: Path) -> Self:
        """Return this model with the router in a folder. Both models share their encoders."""
        router = open_router(folder)
        return type(self)(router, self._open, self.spec, self._head, self.calibration, self._open_for_queries)

    def load(self) -> Self:
        """Load what the first text query needs. Returns this model. InputError if the router needs an extra."""
        _ = self.router.reader
        self.query_encoder.tokenise(["", ""])  # starts the tokenizer's threads
        return self

    @cached_property
    def text_encoder(self) -> SearchEncoder:
        return self._open()

    @property
    def encodes_queries_apart(self) -> bool:
        """Return True if queries have another encoder than documents, or the same encoder in int8."""
        return self._open_for_queries is not None

    @cached_property
    def query_encoder(self) -> SearchEncoder:
        return self.text_encoder if self._open_for_queries is None else self._open_for_queries()

    @property
    def reads_stored(self) -> bool:
        return self.spec.encoder.transformer_part is None and self.router.reader is None

    @property
    def chosen(self) -> ChosenBeam | None:
        """The beam that dev queries chose for the spec's `search.k`. None if dev queries chose no beam."""
        search = self.spec.search
        if search.recall is None or self.calibration is None:
            return None
        return self.calibration.chosen(search.recall, search.k)

    @cached_property
    def flat_similarity(self) -> LevelSimilarity | None:
        """The rule by which searches compare all documents by a level of a tree. None for searches of leaves."""
        return LevelSimilarity.of(self.spec.search, self.tree) if self.spec.search.how == "level" else None

    def flat_query(self, encoded: Encoded) -> FlatQuery | None:
        """Compute queries' numbers at a tree's level. None if leaves are searched. InputError if tokens are missing."""
        return None if self.flat_similarity is None else self.flat_similarity.query(self.tree, encoded)

    @property
    def tree(self) -> Tree:
        """The router as ReTreever's tree, whose levels represent texts. InputError if the router has another type."""
        if not isinstance(self.router, Tree):
            raise InputError(f"search.how: got level with a router of type {self.spec.router.type}; allowed: leaves")
        return self.router

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode texts in the form that the router reads. If the similarity is cosine, vectors have unit length."""
        return self.text_encoder.encode_for(self.router.reader, texts)

    def encoder_for(self, role: Role) -> SearchEncoder:
        """Return the encoder of a role. Both roles share one in float32, unless the spec has another for documents."""
        return self.query_encoder if self._is_apart(role) else self.text_encoder

    def _is_apart(self, role: Role) -> bool:
        return role == "query" and self.spec.encoder.documents is not None

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        """Encode queries for the router, in the number format that dev queries chose."""
        return self.query_encoder.encode_for(self.router.reader, texts, "query")

    def encode_stored(self, base_NM: Floats, texts: Callable[[], Sequence[str]], role: Role) -> Encoded:
        """Encode texts for the router from their base vectors [n, m], or from `texts` if vectors are not enough."""
        if self.reads_stored and not self._is_apart(role):
            return Encoded(base_NM if self._head is None else self._head(base_NM))
        return self.encoder_for(role).encode_for(self.router.reader, texts(), role)

    def route(self, encoded: Encoded, beam: int) -> Ints:
        """Choose `beam` leaves [q, beam] for every query, in the order of visit. InputError if tokens are needed."""
        try:
            return self.router.choose(encoded, beam)
        except ValueError as error:
            raise InputError(f"vector: {error}") from None

    def log_probs(self, encoded: Encoded, beam: int) -> tuple[Ints, Floats]:
        """Choose leaves [q, beam] in the order of visit. Returns also their log-probabilities [q, beam]."""
        try:
            return self.router.route(encoded, beam)
        except ValueError as error:
            raise InputError(f"vector: {error}") from None


@dataclass(frozen=True)
class Routes:
    """Encoded queries, the leaves that they visit, and the milliseconds that encoding and routing took."""

    encoded: Encoded
    leaves_QB: Ints
    """Leaves [q, β] in the order of visit. -1 means none."""
    model: Model
    flat: FlatQuery | None = None
    """Queries' numbers for a search that compares all documents by a level of a tree, and visits no leaf."""
    encode_ms: float = 0.0
    """Milliseconds that encoding took, for all queries together."""
    route_ms: float = 0.0
    """Milliseconds that routing took, for all queries together."""
    queue_ms: float = 0.0
    """Milliseconds that the queries waited for the encoder."""

    @cached_property
    def log_probs(self) -> Floats:
        """Log-probabilities [q, β] of the leaves in `leaves_QB`. No search needs log-probabilities."""
        if not self.leaves_QB.size:
            return np.zeros(self.leaves_QB.shape, np.float32)
        return self.model.log_probs(self.encoded, self.leaves_QB.shape[1])[1]

    @cached_property
    def log_densities(self) -> Floats | None:
        """Log densities [q, β] of the leaves, which order visits. None if the router knows no sizes of leaves."""
        router = self.model.router
        if not isinstance(router, LearnedIvf):
            return None
        return np.asarray(self.log_probs - router.log_size_L[self.leaves_QB])  # leaf -1, no leaf, keeps -inf

    def part(self, rows: slice) -> "Routes":
        """Return the routes of the queries at `rows`. The milliseconds still count all queries."""
        flat = None if self.flat is None else self.flat.part(rows)
        return replace(self, encoded=self.encoded[rows], leaves_QB=self.leaves_QB[rows], flat=flat)


def find_routes(model: Model, queries: Queries | Encoded, beam: int, *, encodes: bool = True) -> Routes:
    """Encode queries, unless `encodes` is False, and route them to `beam` leaves.

    With a beam of 0, queries visit no leaf. If the spec searches by a level of a tree, queries get numbers at the
    level. InputError if the router reads tokens and queries are vectors.
    """
    if not encodes:
        return Routes(Encoded(np.zeros((len(queries), 0), np.float32)), np.zeros((len(queries), 0), np.int64), model)
    began = time.perf_counter()
    encoded = queries if isinstance(queries, Encoded) else _encoded(model, queries)
    routing = time.perf_counter()
    flat = None if beam else model.flat_query(encoded)
    leaves_QB = model.route(encoded, beam) if beam else np.zeros((len(encoded), 0), np.int64)
    times = 1e3 * (routing - began), 1e3 * (time.perf_counter() - routing)
    return Routes(encoded, leaves_QB, model, flat, *times)


def _encoded(model: Model, queries: Queries) -> Encoded:
    return Encoded(queries) if isinstance(queries, np.ndarray) else model.encode_queries(queries)

"""A trained model as searches use it: encodes texts or stored base vectors, and routes the result to leaves."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch

from rayhier.arrays import Floats, Ints
from rayhier.embed.encode import TextEncoder
from rayhier.embed.tokeniser import Tokens
from rayhier.model.encoded import Encoded
from rayhier.model.encoder import ResidualHead, load_head
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.retreever import RetreeverRouter
from rayhier.model.router import Router, load_router, own_beams, route_all
from rayhier.search.calibration import Calibration
from rayhier.search.codebook import Codebook
from rayhier.search.coded_router import CodedRouter, codebook_of, first_pass_before
from rayhier.search.level_similarity import FlatQuery, LevelSimilarity
from rayhier.search.promised_beam import PromisedBeam
from rayhier.spec import InputError, JobSpec
from rayhier.spec.search import MassBeam, RecallBeam
from rayhier.storage import current
from rayhier.storage.artifact import Artifact
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import Location

HEAD_ROWS = 16_384
"""Vectors that a head maps at a time."""


class Model:
    """A trained encoder and its router, as searches use them."""

    def __init__(
        self,
        router: Router,
        text_encoder: Callable[[], TextEncoder],
        spec: JobSpec,
        head: ResidualHead | None = None,
        calibration: Calibration | None = None,
        codebook: Codebook | None = None,
    ) -> None:
        """Take a router, a function that opens the encoder, and a head where it alone maps stored base vectors.

        The head is None where the transformer trained too, so that texts must be encoded. `calibration` is that of the
        index, where the spec promises a recall; `codebook` that of the leaves' codes, None: it is computed.
        """
        self._codebook = codebook
        self.trained, self.spec, self._open, self._head = router, spec, text_encoder, head
        self.calibration = calibration
        # A beam by probability needs the sum over all leaves, which those behind a first pass do not tell.
        self.router = first_pass_before(router, codebook) if _is_coded(spec) else router

    @classmethod
    def open(
        cls,
        model: Artifact,
        spec: JobSpec,
        device: torch.device | None = None,
        calibration: Artifact | None = None,
        leaf_map: LeafMap | None = None,
    ) -> Self:
        """Open a published model with its router on `device`; the encoder's transformer is loaded when first used.

        `calibration` is that of the index to search, where the spec promises a recall. Where the version `leaf_map` has
        a router of its own, that one routes.
        """
        folder = model.local("encoder")
        head = load_head(folder) if spec.encoder.transformer_part is None else None
        revised = None if leaf_map is None else leaf_map.router()
        trained = model.local("router")
        router = load_router(revised or trained, device)
        codebook = (
            codebook_of(trained, router if revised is None else load_router(trained)) if _is_coded(spec) else None
        )
        promises = spec.search.promise is not None
        calibrated = Calibration.open(calibration) if promises and calibration is not None else None
        return cls(router, lambda: TextEncoder(folder, spec.encoder).traced(), spec, head, calibrated, codebook)

    @classmethod
    def of_workdir(cls, workdir: Location, now: Current, leaf_map: LeafMap | None = None) -> Self:
        """Open the model that a workdir's `current.json` names, with the router of a version of its index.

        None: with the model's router. InputError where a file is not as published.
        """
        artifact = current.artifact(workdir, now, "model")
        artifact.verify()
        promises = now.spec.search.promise is not None
        calibration = current.artifact(workdir, now, "calibration") if promises else None
        return cls.open(artifact, now.spec, calibration=calibration, leaf_map=leaf_map)

    def with_router(self, folder: Path) -> Self:
        """Return this model, its encoder shared, with the router that lies in a folder."""
        router, encoder = load_router(folder, self.trained.device), self.text_encoder
        return type(self)(router, lambda: encoder, self.spec, self._head, self.calibration, self._codebook)

    def load(self) -> Self:
        """Load the encoder's transformer, and start the tokenizer's threads, now instead of at the first text.

        Returns this model.
        """
        self.text_encoder.tokenise(["", ""])
        return self

    @cached_property
    def text_encoder(self) -> TextEncoder:
        """The trained encoder with its transformer, loaded at first use; token-reading routers move to its device."""
        encoder = self._open()
        if self.trained.reader is not None and isinstance(self.trained, torch.nn.Module):
            self.trained.to(encoder.device)
        return encoder

    @property
    def open_encoder(self) -> TextEncoder | None:
        """The trained encoder with its transformer; None where stored base vectors and the head are enough."""
        return None if self._reads_stored else self.text_encoder

    @property
    def _reads_stored(self) -> bool:
        return self.spec.encoder.transformer_part is None and self.router.reader is None

    @cached_property
    def search_router(self) -> Router:
        """The router as the spec's `search.beam` needs it, with own beams of queries for types mass and recall.

        InputError where it was not trained with judged queries for type mass, or too few dev queries calibrated the
        index for type recall.
        """
        match self.spec.search.beam:
            case MassBeam() as beam:
                try:
                    return own_beams(self.trained, beam.target)
                except ValueError as error:
                    raise InputError(
                        f"search.beam: got type mass, but {error}; allowed: auto or a whole number"
                    ) from None
            case RecallBeam() as beam:
                if self.calibration is None:
                    raise AssertionError("opened with the index's calibration")
                return self.promised_beam(self.calibration.floor(beam))
            case _:
                return self.router

    def promised_beam(self, floor: float = 0.0) -> PromisedBeam:
        """The router with queries' own beams by relative densities of at least `floor`, for the spec's `search.k`."""
        if not isinstance(self.trained, LearnedIvfRouter):
            raise AssertionError("refused by the spec")
        return PromisedBeam(self.trained, self.router, self.spec.search.k, floor)

    @cached_property
    def promised(self) -> float | None:
        """Least mean share of the exact best `search.k` documents that is promised; None where the spec promises none.

        It is at least the spec's target. InputError where too few dev queries calibrated the index.
        """
        beam = self.spec.search.promise
        if beam is None or self.calibration is None:
            return None
        return self.calibration.promised(self.calibration.floor(beam))

    @cached_property
    def flat_similarity(self) -> LevelSimilarity | None:
        """The rule by which searches compare all documents by a level of a tree; None where they do not."""
        return LevelSimilarity.of(self.spec.search, self.tree) if self.spec.search.how == "level" else None

    def flat_query(self, encoded: Encoded) -> FlatQuery | None:
        """Compute queries' numbers for a search of all documents by a level; None where there is no such search.

        InputError where the router reads tokens and only vectors are known.
        """
        return None if self.flat_similarity is None else self.flat_similarity.query(self.tree, encoded)

    @property
    def tree(self) -> RetreeverRouter:
        """The router as ReTreever's tree, whose levels represent texts; InputError where it is of another type."""
        if not isinstance(self.trained, RetreeverRouter):
            raise InputError(f"search.how: got level, but the router is of type {self.spec.router.type}")
        return self.trained

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode texts as the router reads them; unit vectors where similarity is cosine."""
        return self.text_encoder.encode_for(self.router.reader, texts)

    def encode_stored(
        self, base_NM: Floats, texts: Callable[[], Sequence[str]], tokens: Tokens | None = None
    ) -> Encoded:
        """Encode texts for the router from their base vectors [n, m], or from tokens where vectors are not enough.

        `tokens` are the texts' token ids, where they are known already; otherwise `texts` is called and tokenised.
        """
        if self._reads_stored:
            return Encoded.of(base_NM if self._head is None else map_vectors(self._head, base_NM))
        encoder = self.text_encoder
        return encoder.tokens_for(self.router.reader, encoder.tokenise(texts()) if tokens is None else tokens)

    def route(self, encoded: Encoded, beam: int) -> tuple[Ints, Floats]:
        """Choose `beam` leaves [q, beam] for every query, in the order of visit, with log-probabilities [q, beam].

        InputError where the router reads tokens and only vectors are known.
        """
        return _route(self.router, encoded, beam)

    def route_own(self, encoded: Encoded) -> tuple[Ints, Floats]:
        """Choose the leaves [q, β] that queries visit with own beams, in the order of visit, with log-probabilities.

        β is the most leaves that a query visits; leaf -1 stands where one visits fewer.
        """
        return _route(self.search_router, encoded, self.router.n_leaves)

    def widen(self, encoded: Encoded, beam: int) -> Ints:
        """Choose `beam` leaves [q, beam] for every query, in the order of visit; InputError as in `route`."""
        return self.route(encoded, beam)[0]

    def densities(self, leaves_QB: Ints, log_prob_QB: Floats) -> Floats | None:
        """Compute log densities [q, β] of leaves: log of (probability that the leaf holds an answer / its documents).

        None where the router does not know the leaves' sizes: it then visits leaves in the order of probability.
        """
        if not isinstance(self.trained, LearnedIvfRouter):
            return None
        log_size_L = self.trained.log_size_L.cpu().numpy()
        return np.asarray(log_prob_QB - log_size_L[leaves_QB])  # stays -inf for leaf -1, which is no leaf


def _route(router: Router, encoded: Encoded, beam: int) -> tuple[Ints, Floats]:
    if isinstance(router, CodedRouter):
        return router.route_vectors(encoded.numpy, beam)
    try:
        leaves_QB, log_prob_QB = route_all(router, encoded, beam)
    except ValueError as error:
        raise InputError(f"vector: {error}") from None
    return leaves_QB.numpy(), log_prob_QB.numpy()


@torch.inference_mode()
def map_vectors(head: ResidualHead, base_NM: Floats) -> Floats:
    """Map base vectors [n, m] to trained vectors [n, m] by a head, in batches."""
    parts = [head(part) for part in torch.split(torch.from_numpy(base_NM), HEAD_ROWS)]
    return torch.cat(parts).numpy()


def _is_coded(spec: JobSpec) -> bool:
    """Return True where searches find leaves by codes of these, if there are many."""
    return not isinstance(spec.search.beam, MassBeam)

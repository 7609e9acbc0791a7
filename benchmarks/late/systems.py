"""Forms of the tokens' vectors, and MaxSim of the candidates of a fold by each of them.

Shapes: Q queries, K documents of a list, X some tokens, T all tokens, M numbers of a vector, D of a projected vector,
B bytes.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks import cache
from benchmarks.default_training import Study
from benchmarks.late.candidates import Arrays, Candidates, Listing, Sizes
from benchmarks.late.maxsim import Codec, maxsim, padded, principal, projected
from benchmarks.late.projection import BATCH, EPOCHS, RATE, TEMPERATURE, train
from benchmarks.late.tokens import SAMPLE, Read, halves
from rayhier.arrays import Floats, Ints, Values
from rayhier.progress import say

SIZES, BITS = (32, 64, 96, 128), (4, 2)
"""Numbers of a projected vector, and bits of each in codes."""
TRAINING = (EPOCHS, BATCH, RATE, TEMPERATURE)
CHUNK = 1 << 16
"""Tokens that are projected at a time."""


@dataclass(frozen=True)
class System:
    """A form of the tokens' vectors."""

    size: int | None = None
    """Numbers of a projected vector; None: as the transformer makes them."""
    trained: bool = False
    bits: int | None = None
    """None: half floats."""

    @property
    def name(self) -> str:
        """Name in tables."""
        if self.size is None:
            return "tokens as they are"
        kind = "trained" if self.trained else "principal"
        return f"{kind} {self.size}" + ("" if self.bits is None else f", {self.bits} bits")


PLAIN = System()


def systems(sizes: Sequence[int]) -> list[System]:
    """List the systems that are measured, with projections of some sizes."""
    forms = [
        System(size, trained=trained, bits=bits)
        for trained in (False, True)
        for size in sizes
        for bits in (None, *BITS)
    ]
    return [PLAIN, *forms]


@dataclass(frozen=True)
class Scored:
    """MaxSim of the candidates of a fold by one system."""

    unseen_QK: Floats
    dev_QK: Floats | None
    """None where queries of other folds choose w."""
    seconds_Q: Values
    """Time of each unseen query, from the stored tokens to the scores."""
    bytes: float
    """Mean bytes of a document's tokens."""


@dataclass(frozen=True)
class Stored:
    """Tokens of documents as a sidecar would hold them: half floats [t, d], or bytes [t, b] of a codec."""

    vectors: npt.NDArray[Any]
    codec: Codec | None

    @classmethod
    def of(cls, read: Read, projection_MD: Tensor | None) -> "Stored":
        """Project the tokens of all documents to unit vectors."""
        raw_TM = read.documents.vector_TM
        if projection_MD is None:
            return cls(raw_TM, None)
        parts = (halves(raw_TM[begin : begin + CHUNK]) for begin in range(0, len(raw_TM), CHUNK))
        return cls(np.concatenate([projected(part, projection_MD).half().numpy() for part in parts]), None)

    def coded(self, codec: Codec) -> "Stored":
        """Encode all vectors."""
        parts = (self.vectors[begin : begin + CHUNK] for begin in range(0, len(self.vectors), CHUNK))
        return Stored(np.concatenate([codec.encode(part.astype(np.float32)) for part in parts]), codec)

    @property
    def row_bytes(self) -> int:
        """Bytes of a token."""
        return int(self.vectors.itemsize * self.vectors.shape[1])

    def floats(self, rows: Ints) -> Tensor:
        """Unit vectors [x, d] of some tokens."""
        part = self.vectors[rows]
        return projected(halves(part), None) if self.codec is None else torch.from_numpy(self.codec.decode(part))

    @torch.inference_mode()
    def scores(self, read: Read, listed: Candidates, projection_MD: Tensor | None) -> tuple[Floats, Values]:
        """Compute MaxSim [q, k] of candidates, -inf where there is none, and the seconds [q] that each query takes."""
        score_QK, seconds_Q = np.full(listed.row_QK.shape, -np.inf, np.float32), np.zeros(len(listed.row_QK))
        for query, row_K in enumerate(listed.row_QK):
            place_N = read.place_N[row_K[row_K >= 0]]
            query_IM, of_I = read.query_tokens([listed.queries.texts[query]])
            query_IM = projected(query_IM, projection_MD)
            began = time.perf_counter()
            tokens = padded(self.floats(read.documents.rows(place_N)), read.documents.counts(place_N))
            score_QK[query, : len(place_N)] = maxsim(query_IM, of_I, 1, *tokens)[0].numpy()
            seconds_Q[query] = time.perf_counter() - began
        return score_QK, seconds_Q


class FoldSystems:
    """One fold's MaxSim by every system, kept in `workdir`."""

    def __init__(self, study: Study, read: Read, listed: Listing, seed: int, sizes: Sizes, *, reads_dev: bool) -> None:
        self.study, self.read, self.listed, self.seed, self.sizes = study, read, listed, seed, sizes
        self.reads_dev = reads_dev

    def _kept(self, make: Callable[[], Arrays], *parts: Any) -> Arrays:
        key = cache.key("late", self.listed.fold.name, self.seed, vars(self.sizes), SAMPLE, parts)
        return cache.kept(self.study.kept / f"{key}.npz", make)

    def projection(self, size: int, *, is_trained: bool) -> Tensor:
        """Make a projection [m, d], now or from an earlier run."""
        if not is_trained:
            return principal(projected(self.read.sample(self.listed.answer_Q), None).numpy(), size)

        def make() -> Arrays:
            projection_MD, losses = train(self.read, self.listed, size, self.seed)
            say(f"dev loss {' '.join(f'{loss:.3f}' for loss in losses)}")
            return {"projection": projection_MD.numpy(), "losses": np.array(losses)}

        return torch.from_numpy(self._kept(make, "projection", size, TRAINING)["projection"])

    def scored(self, alike: Sequence[System]) -> Iterator[Scored]:
        """Compute MaxSim by systems of one projection, which is carried out once, now or from an earlier run."""
        stored: dict[int | None, Stored] = {}

        def make(system: System) -> Arrays:
            projection = self.projection(system.size, is_trained=system.trained) if system.size else None
            if not stored:
                stored[None] = Stored.of(self.read, projection)
            if system.bits is not None:
                levels = projected(self.read.sample(self.listed.answer_Q), projection).numpy()
                stored[system.bits] = stored[None].coded(Codec.fit(levels, system.bits))
            tokens = stored[system.bits]
            unseen_QK, seconds_Q = tokens.scores(self.read, self.listed.unseen, projection)
            mean = tokens.row_bytes * len(tokens.vectors) / (len(self.read.documents.begin_N) - 1)
            dev = {"dev": tokens.scores(self.read, self.listed.dev, projection)[0]} if self.reads_dev else {}
            return {"unseen": unseen_QK, "seconds": seconds_Q, "bytes": np.array(mean), **dev}

        for system in alike:
            arrays = self._kept(
                partial(make, system), "scores", system.name, self.reads_dev, TRAINING if system.trained else ()
            )
            yield Scored(arrays["unseen"], arrays.get("dev"), arrays["seconds"], float(arrays["bytes"]))

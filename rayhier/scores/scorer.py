"""Score pairs of texts with a cross-encoder, in batches of pairs of similar length. Recent scores are remembered."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from rayhier.arrays import Floats
from rayhier.model.cross_encoder import CrossEncoder, load_cross_encoder
from rayhier.model.precision import best_device
from rayhier.spec.cross_encoder import CrossEncoderSpec
from rayhier.spec.encoder import Precision
from rayhier.storage import files
from rayhier.storage.artifact import Artifact

CPU_TOKENS = 4_096
"""Largest number of tokens in a CPU's batch, padding included. Larger batches outgrow the CPU's caches."""
PAIRS_AT_ONCE = 64
CHUNK = 4_096
"""Number of pairs that are tokenised and sorted by length together."""
KEPT = 65_536
AGREES = 0.999
"""Least correlation with float32's scores for a number format that `precision: auto` may choose."""
TRIED = 64
Pair = tuple[str, str]
ARITHMETICS: tuple[Precision, ...] = ("float32", "bfloat16", "float16")
SETTINGS = "settings.json"


class PairScorer:
    """A cross-encoder, loaded from a folder, that scores pairs of texts, on a GPU if there is one."""

    def __init__(self, folder: Path, spec: CrossEncoderSpec) -> None:
        """Load the cross-encoder. With precision `auto`, compute in float32 until the first pairs decide."""
        self.folder, self.spec, self.device = folder, spec, best_device()
        self.precision: Precision = spec.precision
        self.model = self._load("float32" if spec.precision == "auto" else spec.precision)
        self._kept: OrderedDict[Pair, float] = OrderedDict()
        self.scored = 0

    def _load(self, precision: Precision) -> CrossEncoder:
        return load_cross_encoder(self.folder, self.spec.head, getattr(torch, precision)).to(self.device)

    def __call__(self, queries: Sequence[str], items: Sequence[str]) -> Floats:
        """Score each query [n] with its item (document): float32 [n]. Remembered pairs are not read again."""
        pairs = list(zip(queries, items, strict=True))
        missing = list(dict.fromkeys(pair for pair in pairs if pair not in self._kept))
        scores = {pair: self._kept[pair] for pair in pairs if pair in self._kept}
        if missing:
            scores |= zip(missing, self._read(missing).tolist(), strict=True)
        for pair in dict.fromkeys(pairs):
            self._kept[pair] = scores[pair]
            self._kept.move_to_end(pair)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return np.array([scores[pair] for pair in pairs], dtype=np.float32)

    def choose(self, queries: Sequence[str], items: Sequence[str]) -> Precision:
        if self.precision == "auto":
            self.precision, self.model = fastest(
                self._load, partial(read_pairs, spec=self.spec), list(zip(queries, items, strict=True))
            )
        return self.precision

    def _read(self, pairs: Sequence[Pair]) -> Floats:
        if self.precision == "auto":
            self.choose([query for query, _ in pairs[:TRIED]], [item for _, item in pairs[:TRIED]])
        self.scored += len(pairs)
        chunks = (pairs[start : start + CHUNK] for start in range(0, len(pairs), CHUNK))
        return np.concatenate([read_pairs(self.model, chunk, self.spec) for chunk in chunks])


@torch.inference_mode()
def read_pairs(model: CrossEncoder, pairs: Sequence[Pair], spec: CrossEncoderSpec) -> Floats:
    """Score pairs of texts: [n]. On a GPU all batches are launched before any result is waited for."""
    if not pairs:
        return np.zeros(0, np.float32)
    device = next(model.parameters()).device
    most = CPU_TOKENS if device.type == "cpu" else PAIRS_AT_ONCE * spec.max_length
    tokens = model.tokenise([query for query, _ in pairs], [item for _, item in pairs], spec.max_length)
    order = sorted(range(len(tokens)), key=lambda row: -len(tokens[row][0]))
    parts, start = [], 0
    while start < len(order):
        size = min(PAIRS_AT_ONCE, max(1, most // len(tokens[order[start]][0])))
        batch = model.padded([tokens[row] for row in order[start : start + size]])
        parts.append(model(batch.to(device)))
        start += size
    score_N = np.empty(len(pairs), dtype=np.float32)
    score_N[order] = torch.cat(parts).cpu().numpy()
    return score_N


def fastest(
    load: Callable[[Precision], CrossEncoder],
    score: Callable[[CrossEncoder, Sequence[Pair]], Floats],
    pairs: Sequence[Pair],
) -> tuple[Precision, CrossEncoder]:
    """Find the fastest precision whose scores correlate with float32's by 0.999 or more. Also returns the model."""
    model = load("float32")
    exact_N, seconds = _timed(score, model, pairs)
    best: tuple[Precision, CrossEncoder, float] = ("float32", model, seconds)
    if len(pairs) < 3 or np.ptp(exact_N) == 0:
        return best[:2]
    for precision in ARITHMETICS[1:]:
        model = load(precision)
        score_N, seconds = _timed(score, model, pairs)
        if seconds < best[2] and np.isfinite(score_N).all() and np.corrcoef(exact_N, score_N)[0, 1] >= AGREES:
            best = (precision, model, seconds)
    return best[:2]


def _timed(score: Callable[..., Floats], model: Any, pairs: Sequence[Pair]) -> tuple[Floats, float]:
    times = []
    for _ in range(2):
        began = time.perf_counter()
        score_N = score(model, pairs)
        times.append(time.perf_counter() - began)
    return score_N, min(times)


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    precision: Precision

    @classmethod
    def read(cls, cross_encoder: Artifact) -> "Settings":
        return cls.model_validate(files.read_json(cross_encoder.path(SETTINGS)))


def open_scorer(cross_encoder: Artifact, spec: CrossEncoderSpec) -> PairScorer:
    used = spec.model_copy(update={"precision": Settings.read(cross_encoder).precision})
    return PairScorer(cross_encoder.local("model"), used)

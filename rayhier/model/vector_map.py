"""A linear map from one model's vectors to another's, learned from documents that both embedded (ours).

Vectors of two encoders that began as one differ by little more than a rotation, so that most of a document's new vector
is known from its old one. Two kinds are fitted: the orthogonal map R of least ||X R - Y|| (Procrustes: Schönemann,
"A generalized solution of the orthogonal Procrustes problem", 1966), and R with a correction, x R + (x - mean) W + b,
where W is ridge regression of what R leaves. Documents left out of the fit choose. Shapes: N documents, M and O
sizes of the vectors of the two models.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from safetensors.numpy import load_file, save_file

from rayhier.arrays import Floats
from rayhier.spec import InputError

ORTHOGONAL = "orthogonal"
RIDGES = (0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Penalties of the correction's weights that are tried, times the mean variance of a dimension and the documents."""
HELD_OUT = 0.2
"""Share of the documents that are left out of the fit, to choose the kind of map."""
FEWEST = 10
"""Least number of documents from which a map is learned."""
WEIGHTS, CONFIG = "map.safetensors", "map.json"


@dataclass(frozen=True)
class VectorMap:
    """A map y = x A + b from vectors [n, m] to vectors [n, o], scaled to unit length where both models' are."""

    weight_MO: Floats
    offset_O: Floats
    is_unit: bool
    kind: str = ORTHOGONAL
    """`orthogonal`, or `ridge` and its penalty."""
    cosine: float = 1.0
    """Mean cosine of mapped vectors to the other model's, over documents that were left out of the fit."""

    def __call__(self, x_NM: Floats) -> Floats:
        """Map vectors [n, m] to vectors [n, o], float32."""
        y_NO = x_NM.astype(np.float32) @ self.weight_MO + self.offset_O
        return _unit(y_NO) if self.is_unit else y_NO

    @classmethod
    def fit(cls, x_NM: Floats, y_NO: Floats, *, is_unit: bool, seed: int = 0) -> Self:
        """Learn a map from documents' vectors by both models; a fifth of the documents chooses the kind of map.

        ValueError where there are fewer than ten documents, or the two arrays do not have as many.
        """
        if len(x_NM) != len(y_NO) or len(x_NM) < FEWEST:
            raise ValueError(f"vectors: got {len(x_NM)} and {len(y_NO)}; allowed: as many of both, {FEWEST} at least")
        left_N = np.random.default_rng(seed).permutation(len(x_NM)) < max(2, HELD_OUT * len(x_NM))
        chosen, best = ORTHOGONAL, -np.inf
        for kind, weight_MO, offset_O in _fits(x_NM[~left_N], y_NO[~left_N], (None, *RIDGES)):
            value = _cosine(cls(weight_MO, offset_O, is_unit)(x_NM[left_N]), y_NO[left_N])
            if value > best:
                chosen, best = kind, value
        penalty = None if chosen == ORTHOGONAL else float(chosen.removeprefix("ridge "))
        ((_, weight_MO, offset_O),) = _fits(x_NM, y_NO, (penalty,))
        return cls(weight_MO, offset_O, is_unit, chosen, best)

    def save(self, folder: Path, models: tuple[str, str]) -> None:
        """Write the map to a folder; `models` are the fingerprints of the model that it maps from, and to."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"weight": self.weight_MO, "offset": self.offset_O}, folder / WEIGHTS)
        about = {"models": models, "is_unit": self.is_unit, "kind": self.kind, "cosine": self.cosine}
        (folder / CONFIG).write_text(json.dumps(about, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path, models: tuple[str, str]) -> Self:
        """Read a map that `save` wrote; InputError where it maps between other models."""
        about, arrays = json.loads((folder / CONFIG).read_text()), load_file(folder / WEIGHTS)
        if tuple(about["models"]) != models:
            raise InputError(
                f"{folder}: maps vectors of model {' to '.join(about['models'])}, not {' to '.join(models)}"
            )
        return cls(arrays["weight"], arrays["offset"], about["is_unit"], about["kind"], about["cosine"])


def _fits(x_NM: Floats, y_NO: Floats, penalties: Sequence[float | None]) -> list[tuple[str, Floats, Floats]]:
    """Fit the orthogonal map (penalty None), and with each penalty its correction: kind, A [m, o], b [o]."""
    x_NM, y_NO = x_NM.astype(np.float64), y_NO.astype(np.float64)
    left_MK, _, right_KO = np.linalg.svd(x_NM.T @ y_NO, full_matrices=False)
    rotation_MO = left_MK @ right_KO
    rest_NO = y_NO - x_NM @ rotation_MO
    mean_M, mean_O = x_NM.mean(axis=0), rest_NO.mean(axis=0)
    centred_NM = x_NM - mean_M
    value_M, vector_MM = np.linalg.eigh(centred_NM.T @ centred_NM)
    target_MO = vector_MM.T @ (centred_NM.T @ (rest_NO - mean_O))
    fits = list[tuple[str, Floats, Floats]]()
    for penalty in penalties:
        if penalty is None:
            fits.append((ORTHOGONAL, rotation_MO.astype(np.float32), np.zeros(y_NO.shape[1], np.float32)))
            continue
        shrunk_M = np.maximum(value_M, 0) + penalty * max(float(value_M.mean()), 1e-12)
        correction_MO = vector_MM @ (target_MO / shrunk_M[:, None])
        offset_O = mean_O - mean_M @ correction_MO
        fits.append(
            (f"ridge {penalty:g}", (rotation_MO + correction_MO).astype(np.float32), offset_O.astype(np.float32))
        )
    return fits


def _unit(x_NM: Floats) -> Floats:
    return np.asarray(x_NM / np.maximum(np.linalg.norm(x_NM, axis=1, keepdims=True), 1e-12))


def _cosine(x_NM: Floats, y_NM: Floats) -> float:
    return float(np.vecdot(_unit(x_NM), _unit(y_NM.astype(np.float32))).mean())

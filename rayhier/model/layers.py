"""Compute an encoder's layers after the transformer in numpy. Shapes: N texts, T tokens, M size of a vector."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from rayhier.arrays import Floats, Ints
from rayhier.storage import files
from rayhier.storage.model_folder import WEIGHTS
from rayhier.storage.model_layout import DENSE, PROMPTS, Activation

TINY = np.float32(1e-12)


class DenseLayer:
    """A linear layer from its folder, y = activation(D x + b)."""

    def __init__(self, folder: Path, activation: Activation = "identity") -> None:
        weights = load_file(folder / WEIGHTS)
        self._matrix_IO = np.ascontiguousarray(weights["linear.weight"].astype(np.float32).T)
        self._bias_O, self._tanh = weights.get("linear.bias"), activation == "tanh"

    def __call__(self, x_NI: Floats) -> Floats:
        y_NO = x_NI @ self._matrix_IO
        if self._bias_O is not None:
            y_NO += self._bias_O
        return np.asarray(np.tanh(y_NO) if self._tanh else y_NO)


def load_head(folder: Path) -> Callable[[Floats], Floats] | None:
    """Load the function of a trained head from base vectors [n, m] to trained vectors. None without a trained head."""
    if not (folder / DENSE / WEIGHTS).is_file():
        return None
    head, path = DenseLayer(folder / DENSE), folder / PROMPTS
    is_dot = path.is_file() and files.read_json(path).get("similarity_fn_name") == "dot"
    return head if is_dot else lambda base_NM: normalized(head(base_NM))


def normalized(x_NM: Floats) -> Floats:
    """Return unit vectors. A zero vector stays zero."""
    return np.asarray(x_NM / np.maximum(np.linalg.norm(x_NM, axis=1, keepdims=True), TINY))


def mean(hidden_NTM: Floats, mask_NT: Ints) -> Floats:
    weight_NT = mask_NT.astype(np.float32)
    return np.asarray(np.einsum("ntm,nt->nm", hidden_NTM, weight_NT) / np.maximum(weight_NT.sum(1), 1e-9)[:, None])


def first(hidden_NTM: Floats, mask_NT: Ints) -> Floats:  # noqa: ARG001  padding is on the right
    return hidden_NTM[:, 0]

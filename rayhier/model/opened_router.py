"""Route queries and place documents by trained routers, in numpy. Training computes the same formulas in torch.

Shapes: N texts, M embedding size, L leaves, K beam, B branching, C leaves of a document, G groups of leaves, P groups
compared, A documents compared with a group, D depth of a tree or width of EHI's input, S splits, H hidden units.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from rayhier.arrays import Bools, Floats, Ints
from rayhier.extras import needs
from rayhier.model.device import Leaders, gpu
from rayhier.model.encoded import Encoded, Reader
from rayhier.model.layers import normalized

CONFIG, WEIGHTS = "config.json", "router.safetensors"
FLOATS_AT_ONCE = 1 << 23
ROWS_AT_ONCE, STORED_AT_ONCE = 8192, 1024
PROBES = 16
"""Number of nearest groups whose leaves a document is compared with."""
SCALE = 20.0
"""Factor of cosines before the softmax that makes them probabilities of leaves: p = softmax(20 cos)."""
UNREAD = "got vectors, but this router reads tokens; allowed: texts"
Weights = Mapping[str, npt.NDArray[Any]]


class OpenedRouter(ABC):
    """A trained router. Leaves are int64, log-probabilities float32."""

    n_leaves: int
    levels: int

    def __init__(self, config: dict[str, Any], weights: Weights) -> None:
        self.config, self.weights = config, weights
        self.dimension = int(config["dimension"])
        self.cells = OpenedCells(weights)

    @property
    def reader(self) -> Reader | None:
        """Function that computes `Encoded.token_scores`. None if the router reads vectors."""
        return None

    def route(self, encoded: Encoded, beam: int) -> tuple[Ints, Floats]:
        """Choose the leaves [n, k] that queries visit, best first, for k = min(beam, leaves).

        Also returns log-probabilities [n, k] that a leaf holds a query's answer. ValueError if tokens are missing.
        """
        return self._batched(self._route, encoded, beam, self.n_leaves)

    def choose(self, encoded: Encoded, beam: int) -> Ints:
        """Choose the leaves [n, k] that queries visit, best first, without log-probabilities."""
        return self.route(encoded, beam)[0]

    def place(self, encoded: Encoded, count: int) -> tuple[Ints, Floats]:
        """Choose the leaves [n, k] in which documents most probably lie, with log-probabilities [n, k]."""
        return self._batched(self._place, encoded, count, self.cells.compared)

    @abstractmethod
    def multiply_adds(self, beam: int) -> int: ...

    @abstractmethod
    def _route(self, encoded: Encoded, beam: int) -> tuple[Ints, Floats]: ...

    def _place(self, encoded: Encoded, count: int) -> tuple[Ints, Floats]:
        return self._route(encoded, count)

    def _batched(
        self, way: Callable[[Encoded, int], tuple[Ints, Floats]], encoded: Encoded, count: int, width: int
    ) -> tuple[Ints, Floats]:
        if self.reader is not None and encoded.token_scores is None:
            raise ValueError(UNREAD)
        rows = max(1, min(ROWS_AT_ONCE, FLOATS_AT_ONCE // width))
        if len(encoded) <= rows:
            return way(encoded, count)
        parts = [way(encoded[begin : begin + rows], count) for begin in range(0, len(encoded), rows)]
        leaf_NK, log_prob_NK = (np.concatenate(column) for column in zip(*parts, strict=True))
        return leaf_NK, log_prob_NK


class OpenedCells:
    """The leaves' centroids, which place documents (model/cells.py has the torch form)."""

    def __init__(self, weights: Weights) -> None:
        self.centroid_LM: Floats = weights["cells.centroid_LM"]
        self.price_L: Floats = weights["cells.price_L"]
        self.border = float(weights["cells.border"])
        self.group_GM: Floats = weights["cells.group_GM"]
        self.group_L: Ints = weights["cells.group_L"]

    @cached_property
    def compared(self) -> int:
        """Largest number of leaves that a document is compared with."""
        leaves, groups = len(self.centroid_LM), len(self.group_GM)
        return min(leaves, groups + PROBES * max(map(len, self._members))) if groups else leaves

    def place(self, vector_NM: Floats, count: int) -> tuple[Ints, Floats]:
        """Find leaves [n, k] by greatest s = cosine - price, a penalty for crowding. Also returns log softmax(20 s)."""
        unit_NM = normalized(vector_NM)
        if self._on_gpu is not None:
            return self._on_gpu(unit_NM, count)
        if len(self.group_GM) <= PROBES:
            return self._among_all(unit_NM, count)
        leaf_NC, log_p_NC = self._near(unit_NM, min(count, len(self.centroid_LM)))
        few_N = np.isinf(log_p_NC[:, -1])
        if few_N.any():  # the nearest groups hold too few leaves
            leaf_NC[few_N], log_p_NC[few_N] = self._among_all(unit_NM[few_N], count)
        return leaf_NC, log_p_NC

    @cached_property
    def _on_gpu(self) -> Leaders | None:
        device = gpu()
        return None if device is None else Leaders(SCALE * self.centroid_LM, -SCALE * self.price_L, device)

    def _among_all(self, unit_NM: Floats, count: int) -> tuple[Ints, Floats]:
        near_NL = SCALE * (unit_NM @ self.centroid_LM.T - self.price_L)
        leaf_NC, near_NC = leading(near_NL, count)
        return leaf_NC, near_NC - logsumexp(near_NL)

    def _near(self, unit_NM: Floats, count: int) -> tuple[Ints, Floats]:
        """Find the best leaves in the nearest groups. These leaves estimate the softmax's sum over all leaves."""
        group_NP = leading(unit_NM @ self.group_GM.T, PROBES)[0]
        near_NPC = np.full((*group_NP.shape, count), -np.inf, np.float32)
        leaf_NPC, total_NP = np.zeros(near_NPC.shape, np.int64), near_NPC[:, :, 0].copy()
        for group in np.unique(group_NP).tolist():
            leaf_G = self._members[group]
            if len(leaf_G):
                row_A, slot_A = np.nonzero(group_NP == group)
                near_AG = unit_NM[row_A] @ self.centroid_LM[leaf_G].T - self.price_L[leaf_G]
                place_AC, best_AC = leading(near_AG, count)
                total_NP[row_A, slot_A] = logsumexp(SCALE * near_AG)[:, 0]
                near_NPC[row_A, slot_A, : best_AC.shape[1]] = best_AC
                leaf_NPC[row_A, slot_A, : best_AC.shape[1]] = leaf_G[place_AC]
        flat = (len(unit_NM), PROBES * count)
        place_NC, near_NC = leading(near_NPC.reshape(flat), count)
        leaf_NC = np.take_along_axis(leaf_NPC.reshape(flat), place_NC, axis=1)
        return leaf_NC, SCALE * near_NC - logsumexp(total_NP)

    @cached_property
    def _members(self) -> list[Ints]:
        order_L = np.argsort(self.group_L, kind="stable")
        ends = np.cumsum(np.bincount(self.group_L, minlength=len(self.group_GM)))
        return np.split(order_L, ends[:-1])


class LearnedIvf(OpenedRouter):
    """A learned IVF (model/learned_ivf.py): queries find leaves by learned weights, documents by centroids."""

    levels = 1

    def __init__(self, config: dict[str, Any], weights: Weights) -> None:
        super().__init__(config, weights)
        self.W, self.b, self.V, self.U, self.log_size_L = (weights[name] for name in ("W", "b", "V", "U", "log_size_L"))
        self.n_leaves = len(self.b)

    @property
    def in_use(self) -> Bools:
        """True [leaves] for a leaf that queries visit. All other leaves were merged with near leaves."""
        return np.isfinite(self.b)

    def bend(self, x_NM: Floats) -> Floats:
        """Transform queries' vectors [n, m] before they are compared with leaves: x + U ReLU(V x)."""
        return np.asarray(x_NM + np.maximum(x_NM @ self.V.T, 0) @ self.U.T) if len(self.V) else x_NM

    def log_probs(self, x_NM: Floats) -> Floats:
        all_NL = self._densities(Encoded(x_NM)) + self.log_size_L
        return np.asarray(all_NL - logsumexp(all_NL))

    def choose(self, encoded: Encoded, beam: int) -> Ints:
        return self._batched(lambda some, k: leading(self._densities(some), k), encoded, beam, self.n_leaves)[0]

    def _densities(self, encoded: Encoded) -> Floats:
        """Compute log densities [n, leaves] of answers in leaves, up to a constant for each query."""
        return np.asarray(self.bend(encoded.numpy) @ self.W.T + self.b)

    def _route(self, encoded: Encoded, beam: int) -> tuple[Ints, Floats]:
        all_NL = self._densities(encoded)
        leaf_NK, score_NK = leading(all_NL, beam)
        return leaf_NK, score_NK + self.log_size_L[leaf_NK] - logsumexp(all_NL + self.log_size_L)

    def _place(self, encoded: Encoded, count: int) -> tuple[Ints, Floats]:
        return self.cells.place(encoded.numpy, count)

    def multiply_adds(self, beam: int) -> int:  # noqa: ARG002  all leaves are compared
        return (2 * len(self.V) + self.n_leaves) * self.dimension


class Ehi(OpenedRouter):
    """EHI's tree of classifiers (model/ehi.py), searched with a beam."""

    def __init__(self, config: dict[str, Any], weights: Weights) -> None:
        super().__init__(config, weights)
        self.branching, self.levels = int(config["branching"]), int(config["height"])
        self.n_leaves = self.branching**self.levels
        self._W = [weights[f"W.{level}.weight"] for level in range(self.levels)]
        self._U = [weights.get(f"U.{level}.weight") for level in range(self.levels)]

    def _route(self, encoded: Encoded, beam: int) -> tuple[Ints, Floats]:
        if self._on_gpu is not None:
            return self._on_gpu(self._bent(0, encoded.numpy), beam)
        input_NKD, n = encoded.numpy[:, None], len(encoded)
        leaf_NK, log_p_NK = np.zeros((n, 1), np.int64), np.zeros((n, 1), np.float32)
        for level in range(self.levels):
            nodes, width = input_NKD.shape[1:]
            child_NKB = self._log_softmax(level, input_NKD.reshape(-1, width)).reshape(n, nodes, self.branching)
            flat_NK, log_p_NK = leading((log_p_NK[:, :, None] + child_NKB).reshape(n, nodes * self.branching), beam)
            parent_NK, child_NK = np.divmod(flat_NK, self.branching)
            leaf_NK = np.take_along_axis(leaf_NK, parent_NK, axis=1) * self.branching + child_NK
            if level + 1 < self.levels:
                above_NKD = np.take_along_axis(input_NKD, parent_NK[:, :, None], axis=1)
                input_NKD = np.concatenate([np.eye(self.branching, dtype=np.float32)[child_NK], above_NKD], axis=2)
        return leaf_NK, log_p_NK

    def choose(self, encoded: Encoded, beam: int) -> Ints:
        if self.levels > 1 or self._on_gpu is not None:
            return super().choose(encoded, beam)
        W = self._W[0]
        return self._batched(lambda some, k: leading(self._bent(0, some.numpy) @ W.T, k), encoded, beam, len(W))[0]

    def _log_softmax(self, level: int, x_XD: Floats) -> Floats:
        score_XB = self._bent(level, x_XD) @ self._W[level].T
        return np.asarray(score_XB - logsumexp(score_XB))

    def _bent(self, level: int, x_XD: Floats) -> Floats:
        U = self._U[level]
        return x_XD if U is None else np.asarray(x_XD + np.maximum(x_XD @ U.T, 0))

    @cached_property
    def _on_gpu(self) -> Leaders | None:
        device = gpu()
        return None if device is None or self.levels > 1 else Leaders(self._W[0], None, device)

    def multiply_adds(self, beam: int) -> int:
        total = 0
        for level, W in enumerate(self._W):
            nodes, width = min(beam, self.branching**level), W.shape[1]
            total += nodes * width * (self.branching + (0 if self._U[level] is None else width))
        return total


class Tree(OpenedRouter):
    """ReTreever's tree (model/retreever.py). torch computes splits that read tokens."""

    def __init__(self, config: dict[str, Any], weights: Weights) -> None:
        super().__init__(config, weights)
        self.levels, self.similarity = int(config["depth"]), config["similarity"]
        self.n_leaves = 2**self.levels
        self.offset_L: Floats | None = weights.get("representations.offset_L")
        """Learned numbers [leaves] that are added to a text's numbers before the cosine. None for total variation."""
        self._weights = {name.removeprefix("representations.tree."): array for name, array in weights.items()}

    @cached_property
    def reader(self) -> Reader | None:
        """Function that computes `Encoded.token_scores`. InputError if the router reads tokens and torch is missing."""
        if self.config["splits"] != "attention":
            return None
        needs("router.splits: got attention, which reads tokens: it", "torch")
        from rayhier.model.retreever import token_reader

        return token_reader(self.config, self._weights)

    def log_probs(self, encoded: Encoded) -> Floats:
        scores = self._scores(encoded.numpy) if encoded.token_scores is None else encoded.token_scores
        log_p_NL = products(scores)
        if "propagation.weight_LDH" not in self._weights:
            return log_p_NL
        weight_LDH, bias_LH, output_LH = (
            self._weights[f"propagation.{name}"] for name in ("weight_LDH", "bias_LH", "output_LH")
        )
        leaf_L1, up_D = np.arange(self.n_leaves)[:, None], np.arange(self.levels, 0, -1)
        path_LD, sign_LD = 2 ** (self.levels - up_D) - 1 + (leaf_L1 >> up_D), 1 - 2 * ((leaf_L1 >> (up_D - 1)) & 1)
        probability_LND = np.exp(log_sigmoids(scores[:, path_LD] * sign_LD.astype(np.float32))[0]).transpose(1, 0, 2)
        hidden_LNH = np.maximum(probability_LND @ weight_LDH + bias_LH[:, None], 0)
        score_NL = log_p_NL + (hidden_LNH @ output_LH[:, :, None])[:, :, 0].T
        return np.asarray(score_NL - logsumexp(score_NL))

    def leaves(self, encoded: Encoded) -> npt.NDArray[np.float16]:
        parts = [encoded[begin : begin + STORED_AT_ONCE] for begin in range(0, max(1, len(encoded)), STORED_AT_ONCE)]
        return np.concatenate([stored(self.log_probs(part)) for part in parts])

    def _scores(self, vector_NM: Floats) -> Floats:
        read_NH, w = vector_NM, self._weights
        if "splits.trunk.hidden.weight" in w:
            read_NH = np.maximum(vector_NM @ w["splits.trunk.hidden.weight"].T + w["splits.trunk.hidden.bias"], 0)
        return np.asarray(read_NH @ w["splits.planes.weight"].T + w["splits.planes.bias"])

    def _route(self, encoded: Encoded, beam: int) -> tuple[Ints, Floats]:
        return leading(self.log_probs(encoded), beam)

    def multiply_adds(self, beam: int) -> int:  # noqa: ARG002  all splits are scored whatever the beam
        """Count the multiply-adds of routing one text. Attention is counted for one token."""
        sizes = {name: array.size for name, array in self._weights.items()}
        if self.config["splits"] != "attention":
            return sizes["splits.planes.weight"] + sizes.get("splits.trunk.hidden.weight", 0)
        width = len(self._weights["splits.key.weight"])
        return 2 * width * (self.dimension + self.n_leaves - 1) + sizes["splits.planes.weight"]


def open_router(folder: Path) -> OpenedRouter:
    config = json.loads((folder / CONFIG).read_text())
    return router_of(config, load_file(folder / WEIGHTS), folder / CONFIG)


def router_of(config: dict[str, Any], weights: Weights, source: object = "router") -> OpenedRouter:
    match config["type"]:
        case "ehi":
            return Ehi(config, weights)
        case "learned_ivf":
            return LearnedIvf(*_renamed(config, weights))
        case "retreever":
            return Tree(config, weights)
        case kind:
            raise ValueError(f"{source}: router type {kind!r}; allowed: 'ehi', 'learned_ivf', 'retreever'")


def _renamed(config: dict[str, Any], weights: Weights) -> tuple[dict[str, Any], Weights]:
    """Give a learned IVF of rayhier 0.2.0 the present names. ValueError if the router has several levels."""
    if "branching" not in config:
        return config, weights
    if config.pop("height") > 1:
        raise ValueError("router.height: got a tree of several levels; allowed: 1, after you build the index again")
    config["leaves"] = config.pop("branching")
    return config, {name.removesuffix(".0"): array for name, array in weights.items() if name != "reach_T"}


def write_router(config: dict[str, Any], weights: Weights, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n")
    save_file({name: np.array(array, order="C") for name, array in weights.items()}, folder / WEIGHTS)


def stored(log_p_NL: Floats) -> npt.NDArray[np.float16]:
    """Return probabilities [n, leaves] as an index stores them: times leaves/2, to fit float16 at any depth.

    >>> stored(np.log(np.array([[0.25, 0.75]])))
    array([[0.25, 0.75]], dtype=float16)
    """
    return np.asarray(np.exp(log_p_NL) * (log_p_NL.shape[1] / 2), np.float16)


def at_level(stored_NL: npt.NDArray[Any], level: int) -> Floats:
    """Compute probabilities [n, 2^level] of a level's nodes from leaves' probabilities as stored.

    >>> at_level(np.array([[0.25, 0.25, 0.5, 1.0]], np.float16), 1)
    array([[0.25, 0.75]], dtype=float32)
    """
    texts, leaves = stored_NL.shape
    return np.asarray(stored_NL.reshape(texts, 2**level, -1).sum(axis=2, dtype=np.float32) / np.float32(leaves / 2))


def products(score_NS: Floats) -> Floats:
    """Compute log-probabilities [n, leaves]. Paths multiply sigmoid(score) to the left, sigmoid(-score) to the right.

    >>> np.exp(products(np.array([[0.0, np.inf, -np.inf]], np.float32)))
    array([[0.5, 0. , 0. , 0.5]], dtype=float32)
    """
    above_NK = np.zeros((len(score_NS), 1), np.float32)
    while (begin := above_NK.shape[1] - 1) < score_NS.shape[1]:
        score_NK = score_NS[:, begin : 2 * begin + 1]
        both_NK2 = np.stack(log_sigmoids(score_NK), axis=2)
        above_NK = (above_NK[:, :, None] + both_NK2).reshape(len(score_NS), 2 * above_NK.shape[1])
    return above_NK


def log_sigmoids(x: Floats) -> tuple[Floats, Floats]:
    rest = np.log(1 + np.exp(-np.abs(x)))
    return np.minimum(x, 0) - rest, np.minimum(-x, 0) - rest


def logsumexp(x_NL: Floats) -> Floats:
    """Compute log Σ exp [n, 1] of the rows of x."""
    most_N1 = x_NL.max(axis=1, keepdims=True, initial=-np.inf)
    most_N1 = np.where(np.isfinite(most_N1), most_N1, 0)
    with np.errstate(divide="ignore"):
        return np.asarray(most_N1 + np.log(np.exp(x_NL - most_N1).sum(axis=1, keepdims=True)))


def leading(score_NL: Floats, count: int) -> tuple[Ints, Floats]:
    """Return the places and values [n, k] of the greatest scores of each row, for k = min(count, l)."""
    count = min(count, score_NL.shape[1])
    place_NK = np.broadcast_to(np.arange(count), (len(score_NL), count))
    if 0 < count < score_NL.shape[1]:
        is_one = count == 1  # ten times as fast
        place_NK = score_NL.argmax(1)[:, None] if is_one else np.argpartition(score_NL, -count, axis=1)[:, -count:]
    value_NK = np.take_along_axis(score_NL, place_NK, axis=1)
    order_NK = np.argsort(-value_NK, axis=1, kind="stable")
    return np.take_along_axis(place_NK, order_NK, axis=1), np.take_along_axis(value_NK, order_NK, axis=1)

"""MaxSim between the tokens of queries and documents, projections of token vectors, and codes of few bits for them.

Source: ColBERT (Khattab and Zaharia, SIGIR 2020): a query's token counts by its most similar token of the document. The
sum over the query's tokens is divided by their number, so that long and short queries have scores alike. Codes have one
scalar quantiser for each number of a vector (Lloyd's, on tokens of documents); ColBERTv2 (Santhanam et al., NAACL 2022)
codes the residual to a centroid, with quantiles as borders.

Shapes: I tokens of all queries together, Q queries, N documents, T tokens of a document, M numbers of a token's vector,
D numbers of a projected vector, X some tokens, B bytes of a code, V the 256 values of a byte, P numbers in a byte, L
levels of a number.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.arrays import Floats, Ints

ROUNDS = 20
"""Of Lloyd's algorithm."""
Bytes = npt.NDArray[np.uint8]


def maxsim(query_IM: Tensor, of_I: Tensor, queries: int, document_NTM: Tensor, mask_NT: Tensor) -> Tensor:
    """Compute MaxSim [q, n] of queries and documents, with gradient; 0 for a query or a document without tokens.

    `query_IM` are unit vectors of all queries' tokens and `of_I` the number of each token's query; `document_NTM` are
    unit vectors of the documents' tokens, and the mask is True on tokens, False on padding.

    >>> query_IM, document_NTM = torch.eye(2), torch.tensor([[[0.6, 0.8], [1.0, 0.0]]])
    >>> maxsim(query_IM, torch.tensor([0, 0]), 1, document_NTM, torch.tensor([[True, True]])).item()
    0.8999999761581421
    """
    n, t, m = document_NTM.shape
    with torch.no_grad():
        cosine_INT = (query_IM @ document_NTM.reshape(n * t, m).T).reshape(-1, n, t)
        best_IN = cosine_INT.masked_fill_(~mask_NT, -torch.inf).argmax(dim=2)
    if torch.is_grad_enabled():
        cosine_IN = (query_IM[:, None] * document_NTM[torch.arange(n), best_IN]).sum(dim=2)
    else:
        cosine_IN = cosine_INT.gather(2, best_IN[:, :, None])[:, :, 0]
    cosine_IN = torch.where(mask_NT.any(dim=1), cosine_IN, 0.0)
    count_Q = torch.bincount(of_I, minlength=queries).clamp(min=1)
    return torch.zeros(queries, n).index_add(0, of_I, cosine_IN) / count_Q[:, None]


def padded(vector_XD: Tensor, count_N: Ints) -> tuple[Tensor, Tensor]:
    """Pad the tokens' vectors of texts that stand one behind the other: vectors [n, t, d], and a mask [n, t]."""
    mask_NT = torch.arange(int(count_N.max(initial=1))) < torch.from_numpy(count_N)[:, None]
    vector_NTD = torch.zeros(*mask_NT.shape, vector_XD.shape[1])
    vector_NTD[mask_NT] = vector_XD
    return vector_NTD, mask_NT


def principal(vector_XM: Floats, size: int) -> Tensor:
    """Return the projection [m, d] that keeps most of the vectors' squared length (their mean is not subtracted)."""
    _, direction_MM = np.linalg.eigh(vector_XM.T.astype(np.float64) @ vector_XM)
    return torch.from_numpy(direction_MM[:, ::-1][:, :size].astype(np.float32))


def projected(vector_XM: Tensor, projection_MD: Tensor | None) -> Tensor:
    """Project token vectors to unit vectors [x, d]; None: of their own size [x, m]."""
    return F.normalize(vector_XM if projection_MD is None else vector_XM @ projection_MD, dim=1)


@dataclass(frozen=True)
class Codec:
    """Codes of 2 or 4 bits for each number of a token's vector."""

    border_DL: Floats
    """Between two levels, in order."""
    level_BVP: Floats
    """The numbers [p] that each value [v] of a byte [b] stands for."""
    bits: int

    @classmethod
    def fit(cls, vector_XD: Floats, bits: int) -> "Codec":
        """Fit levels to vectors of some tokens."""
        levels, sorted_XD = 1 << bits, np.sort(vector_XD, axis=0)
        at_L = (np.arange(levels) + 0.5) / levels * (len(sorted_XD) - 1)
        level_DL = sorted_XD[at_L.astype(int)].T.astype(np.float64)
        for _ in range(ROUNDS):
            border_DL = (level_DL[:, 1:] + level_DL[:, :-1]) / 2
            for number, border_L in enumerate(border_DL):
                parts = np.split(sorted_XD[:, number], np.searchsorted(sorted_XD[:, number], border_L))
                level_DL[number] = [
                    part.mean() if len(part) else level for part, level in zip(parts, level_DL[number], strict=True)
                ]
        border_DL = ((level_DL[:, 1:] + level_DL[:, :-1]) / 2).astype(np.float32)
        per_byte = 8 // bits
        part_VP = (np.arange(256)[:, None] >> (bits * np.arange(per_byte))) & (levels - 1)
        level_BPL = level_DL.reshape(-1, per_byte, levels).astype(np.float32)
        value_BVP = level_BPL[:, np.arange(per_byte), part_VP]
        return cls(border_DL, value_BVP, bits)

    def encode(self, vector_XD: Floats) -> Bytes:
        """Encode vectors as bytes [x, b]."""
        per_byte = 8 // self.bits
        byte_XB = np.zeros((len(vector_XD), vector_XD.shape[1] // per_byte), np.uint8)
        for number, border_L in enumerate(self.border_DL):
            code_X = np.searchsorted(border_L, vector_XD[:, number]).astype(np.uint8)
            byte_XB[:, number // per_byte] |= code_X << np.uint8(self.bits * (number % per_byte))
        return byte_XB

    def decode(self, byte_XB: Bytes) -> Floats:
        """Decode bytes as unit vectors [x, d]."""
        value_XBP = self.level_BVP[np.arange(byte_XB.shape[1]), byte_XB]
        vector_XD = value_XBP.reshape(len(byte_XB), -1)
        return np.asarray(vector_XD / np.linalg.norm(vector_XD, axis=1, keepdims=True).clip(min=1e-9))

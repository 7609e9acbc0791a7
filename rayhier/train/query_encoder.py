"""Train a small encoder of queries to make the vectors that the trained encoder makes of texts.

So a large model encodes documents once, and a small model encodes each query. Source: R. Vujanic, T. Rückstieß, "LEAF:
Knowledge Distillation of Text Embedding Models with Teacher-Aligned Representations" (2025).

Shapes: N texts, M size of the trained vectors, S size of the small encoder's vectors.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.embed.encode import TextEncoder
from rayhier.embed.spans import first_sentence
from rayhier.model.encoder import Dense, Encoder, Normalize
from rayhier.progress import log
from rayhier.spec.encoder import EncoderSpec
from rayhier.train.examples import batches

DOCUMENTS, PASSES, BATCH, RATE = 10_000, 3, 64, 1e-4
"""Largest number of documents whose titles and first sentences are read, passes over these, texts in a step, and
learning rate."""
RIDGE = 1e-3


def texts_of(documents: pa.Table) -> list[str]:
    """List the titles and first sentences of documents (columns `title`, `text`), because they are like queries."""
    sentences = [first_sentence(text)[0] for text in documents["text"].to_pylist()]
    return [text for text in (*documents["title"].to_pylist(), *sentences) if text.strip()]


def distil(
    base: Path, trained: Path, spec: EncoderSpec, texts: Sequence[str], dev: Sequence[str], seed: int
) -> Encoder:
    """Train the encoder in `base`, with a linear layer, so that its vectors equal those of the encoder in `trained`."""
    precise = spec.model_copy(update={"precision": "float32"})
    teacher, student = TextEncoder(trained, precise), TextEncoder(base, precise)
    target_NM = torch.from_numpy(teacher.encode(texts, "query"))
    encoder, tokens = student.encoder, student.tokenise(list(texts), "query")
    dense = Dense(regression(torch.from_numpy(student.encode(texts, "query")), target_NM))
    encoder.steps.extend([dense, *([Normalize()] if spec.similarity == "cosine" else [])]).to(student.device)
    encoder.dimension = target_NM.shape[1]
    optimizer = torch.optim.AdamW(encoder.trainable("all"), RATE)
    steps = [rows for epoch in range(PASSES) for rows in batches(len(texts), BATCH, seed, epoch)]
    for number, some in enumerate(steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - number / len(steps))
        rows = np.array(sorted(some, key=lambda row: -len(tokens[row])))
        made_NM = encoder(*student.padded([tokens[row] for row in rows]))
        loss = 1 - F.cosine_similarity(made_NM, target_NM[rows].to(made_NM.device)).mean()
        if spec.similarity == "dot":
            loss = loss + F.mse_loss(made_NM, target_NM[rows].to(made_NM.device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    if dev:
        made_NM, wanted_NM = (torch.from_numpy(one.encode(dev, "query")) for one in (student, teacher))
        cosine_N = F.cosine_similarity(made_NM, wanted_NM)
        log(f"  queries: {cosine_N.mean():.3f} is the mean cosine of the two encoders' vectors of dev queries")
    return encoder


def regression(from_NS: Tensor, to_NM: Tensor) -> Tensor:
    """Compute the ridge regression from vectors [n, s] to vectors [n, m]: a matrix [m, s]."""
    gram_SS = from_NS.T @ from_NS
    ridge_SS = RIDGE * gram_SS.trace() / len(gram_SS) * torch.eye(len(gram_SS))
    matrix_SM: Tensor = torch.linalg.solve(gram_SS + ridge_SS, from_NS.T @ to_NM)
    return matrix_SM.T.contiguous()

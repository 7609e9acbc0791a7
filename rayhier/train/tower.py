"""Train encoders, called towers: a head on stored vectors, or the whole encoder. A side is a set of texts to encode."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from rayhier.arrays import Floats, Ints, for_vectors, mapped
from rayhier.dataset.documents import Documents, Texts
from rayhier.dataset.queries import Queries
from rayhier.dataset.spans import Spans
from rayhier.embed.batches import Tokens
from rayhier.embed.encode import CHUNK_TEXTS, TextEncoder
from rayhier.model.encoder import ResidualHead, save_encoder, save_trained
from rayhier.model.precision import best_device, resolve
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.artifact import Artifact
from rayhier.storage.model_layout import Role
from rayhier.train.examples import Examples
from rayhier.train.group import WorkerGroup

Side = Literal["query", "document", "dev", "pseudo"]
TOWER_ROWS, TOKENISED = 16_384, 1 << 20
"""Number of vectors that a head reads at a time, and of texts in a block of tokens."""
ENCODED = 65_536
"""Number of texts that the workers encode together before each worker gathers all vectors."""


class TokenStore:
    """Token ids of many texts, in blocks of equal numbers of texts. Blocks lie in mapped files."""

    def __init__(self) -> None:
        self._blocks: list[tuple[npt.NDArray[Any], Ints]] = []

    @classmethod
    def of(cls, texts: Texts, tokenise: Callable[[list[str]], Tokens]) -> Self:
        """Tokenise texts. Each worker tokenises a share, and gets all tokens."""

        def share(row_N: Ints) -> tuple[npt.NDArray[np.int32], Ints]:
            chunks = [tokenise(texts[some_N]) for some_N in _chunks(row_N)]
            ids = [np.zeros(0, np.int32), *(np.asarray(ids, np.int32) for tokens in chunks for ids in tokens)]
            return np.concatenate(ids), np.array([len(each) for each in ids[1:]], np.int64)

        store = cls()
        for begin in range(0, len(texts), TOKENISED):
            row_N = np.arange(begin, min(begin + TOKENISED, len(texts)))
            ids, length_N = WorkerGroup().spread(share, row_N)
            kept = mapped(ids.shape, np.uint16 if ids.max(initial=0) < 1 << 16 else np.int32) if len(ids) else ids
            kept[:] = ids
            store._blocks.append((kept, np.concatenate([[0], np.cumsum(length_N)])))
        return store

    def __getitem__(self, row_N: Ints) -> list[npt.NDArray[Any]]:
        places = zip(*(part.tolist() for part in np.divmod(row_N, TOKENISED)), strict=True)
        return [self._blocks[block][0][slice(*self._blocks[block][1][place : place + 2])] for block, place in places]


def _chunks(row_N: Ints) -> list[Ints]:
    return np.split(row_N, range(CHUNK_TEXTS, len(row_N), CHUNK_TEXTS))


class HeadTower:
    """A trainable head on stored vectors of a frozen encoder, so that texts are embedded only once (ours)."""

    micro_batch: int | None = None
    """Largest number of texts whose activations are in memory at a time. None: any number."""

    def __init__(self, head: ResidualHead, stored: Mapping[Side, Floats], device: torch.device) -> None:
        self.module = head.to(device)
        self.stored = stored
        self.device = device

    def size(self, side: Side) -> int:
        return len(self.stored[side])

    def encode(self, side: Side, rows: Ints) -> Tensor:
        """Compute trained vectors [n, m] of a side's texts at `rows` [n], with gradient."""
        vectors: Tensor = self.module(torch.from_numpy(self.stored[side][rows]).float().to(self.device))
        return vectors

    @torch.no_grad()
    def infer(self, side: Side, rows: Ints) -> Tensor:
        parts = [self.encode(side, part) for part in np.array_split(rows, max(1, -(-len(rows) // TOWER_ROWS)))]
        return torch.cat(parts)

    def save(self, base: Path, max_length: int, folder: Path) -> None:
        """Write the trained encoder as a sentence-transformers folder. `base` is the untrained encoder's folder."""
        save_encoder(base, self.module, max_length, folder, trained=self.module.weight.requires_grad)


class TextTower:
    """A transformer that trains on texts, or only encodes them. Only the sides in `noisy` have dropout."""

    micro_batch: int | None = None
    noisy: frozenset[Side] = frozenset()
    """Sides that are encoded with dropout. The dropout mask depends on the rows and `noise`."""

    def __init__(
        self,
        encoder: TextEncoder,
        which: Literal["last_layer", "all"] | None,
        texts: Mapping[Side, Texts],
        dtype: torch.dtype,
    ) -> None:
        self.encoder, self.texts, self.dtype = encoder, dict(texts), dtype
        self._tokens: dict[Side, TokenStore] = {}
        self.noise = 0
        """Seed of the dropout masks. The rows of a batch are part of the seed too."""
        self.module = encoder.encoder
        if which is None:
            self.module.requires_grad_(requires_grad=False)
        else:
            self.module.trainable(which)

    @property
    def device(self) -> torch.device:
        return self.encoder.device

    def size(self, side: Side) -> int:
        return len(self.texts[side])

    def give(self, side: Side, texts: Sequence[str]) -> None:
        self.texts[side] = Texts(pa.chunked_array([pa.array(texts, pa.string())]))
        self._tokens.pop(side, None)

    def tokens(self, side: Side) -> TokenStore:
        """Return the token ids of a side's texts. The workers tokenise the texts together, once."""
        if side not in self._tokens:
            self._tokens[side] = TokenStore.of(self.texts[side], partial(self.encoder.tokenise, role=_role(side)))
        return self._tokens[side]

    def encode(self, side: Side, rows: Ints) -> Tensor:
        self.tokens(side)  # on every worker, also without rows
        if not len(rows):
            return torch.zeros(0, self.encoder.dimension, device=self.device, requires_grad=torch.is_grad_enabled())
        ids_NT, mask_NT, back = self._padded(side, rows)
        with self._autocast(), self._dropout(side, rows):
            vectors: Tensor = self.module(ids_NT, mask_NT).float()
        return vectors[back]

    def _padded(self, side: Side, rows: Ints) -> tuple[Tensor, Tensor, Tensor]:
        """Return token ids and mask [n, t] of texts, longest first, and the place [n] of each text in this order."""
        tokens = self.tokens(side)[rows]
        order = np.argsort([-len(ids) for ids in tokens], kind="stable")
        padded = self.encoder.padded([tokens[row] for row in order])
        return *padded, torch.from_numpy(np.argsort(order)).to(self.device)

    @contextmanager
    def _dropout(self, side: Side, rows: Ints) -> Iterator[None]:
        if side not in self.noisy:
            yield
            return
        devices = [] if self.device.type == "cpu" else [self.device]
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(zlib.crc32(rows.tobytes(), self.noise))
            self.module.train()
            try:
                yield
            finally:
                self.module.eval()

    def infer(self, side: Side, rows: Ints) -> Tensor:
        chunks = map(self.tokens(side).__getitem__, _chunks(rows))
        with self._autocast():
            return torch.from_numpy(self.encoder.encode_tokens(len(rows), chunks)).to(self.device)

    @torch.no_grad()
    def read(self, side: Side, rows: Ints) -> tuple[Tensor, Tensor]:
        """Compute vectors [n, t, m] of the tokens in a side's texts, and a mask [n, t], 1 on tokens."""
        if not len(rows):
            return torch.zeros(0, 1, self.encoder.dimension, device=self.device), torch.zeros(0, 1, device=self.device)
        ids_NT, mask_NT, back = self._padded(side, rows)
        with self._autocast():
            return self.module.hidden(ids_NT, mask_NT).float()[back], mask_NT[back]

    def save(self, base: Path, max_length: int, folder: Path) -> None:  # noqa: ARG002  needs no base
        save_trained(self.module, max_length, folder)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)


Tower = HeadTower | TextTower


def _role(side: Side) -> Role:
    return "document" if side == "document" else "query"


def build_tower(
    spec: EncoderSpec,
    folder: Path,
    corpus: Artifact,
    documents: Documents,
    examples: Examples,
    dev: Queries,
    spans: Spans | None = None,
) -> Tower:
    """Make a head on stored vectors, or the encoder in `folder` on texts, as `encoder.train` says.

    Workers that share batches need `encoder.precision` by name, because with `auto` they might choose differently.
    """
    device = best_device()
    if spec.transformer_part is None:
        head = ResidualHead(documents.vector_NM.shape[1], spec.similarity)
        head.requires_grad_(spec.train == "head")
        stored: dict[Side, Floats] = {"query": examples.query_QM, "document": documents.vector_NM, "dev": dev.vector_QM}
        if spans is not None:
            stored["pseudo"] = spans.vector_PM
        return HeadTower(head, stored, device)
    return text_tower(spec, folder, corpus, examples, dev)


def text_tower(spec: EncoderSpec, folder: Path, corpus: Artifact, examples: Examples, dev: Queries) -> TextTower:
    device = best_device()
    encoder = TextEncoder(folder, spec.model_copy(update={"precision": "float32"}))
    dev_texts, query_texts = (
        Texts(pa.chunked_array([pa.array(found, pa.string())])) for found in (dev.texts, examples.query_texts)
    )
    texts: dict[Side, Texts] = {"document": Texts.of(corpus), "dev": dev_texts, "query": query_texts}
    if examples.same:
        texts["query"] = texts["document"]
    tower = TextTower(encoder, spec.transformer_part, texts, resolve(spec.precision, device))
    for side in texts:  # all workers do this now, because later only some of them may read a side
        tower.tokens(side)
    return tower


def encode_side(tower: Tower, side: Side, dimension: int, group: WorkerGroup) -> Floats:
    """Encode all texts of a side [n, m]. Each worker encodes a share, and gets all vectors."""
    return divided(lambda rows: tower.infer(side, rows), np.arange(tower.size(side)), dimension, group)


def divided(infer: Callable[[Ints], Tensor], row_N: Ints, width: int, group: WorkerGroup) -> Floats:
    """Apply `infer` to rows [n, width]. Each worker computes a share, and gets all results."""
    result_NW = for_vectors(len(row_N), width)
    for begin in range(0, len(row_N), ENCODED):
        shares = group.shares(row_N[begin : begin + ENCODED])
        joined_NM = group.join(infer(shares[group.rank]), [len(share) for share in shares])
        result_NW[begin : begin + ENCODED] = joined_NM.float().cpu().numpy()
    return result_NW

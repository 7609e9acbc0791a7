"""Save vectors every few seconds while texts are encoded, so that a stopped run keeps its work."""

import time
from collections.abc import Generator, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from rayhier.arrays import Floats, Ints
from rayhier.embed.batches import Tokens
from rayhier.embed.clock import Clock
from rayhier.embed.encode import TextEncoder
from rayhier.storage import columns, files, parquet
from rayhier.storage.ledger import Ledger, LedgerEntry

SECONDS = 5.0


class SavedVectors:
    """Vectors of the texts of a part, saved in the folder of a ledger until the part is written."""

    def __init__(self, ledger: Ledger, key: str) -> None:
        self._ledger, self._key = Ledger(ledger.folder, ledger.folder), key
        self._parts: list[tuple[Ints, torch.Tensor]] = []
        self._number = 0
        while entry := self._ledger.done(f"{key}-saved-{self._number}"):
            if entry.counts["begin"] != self._count:  # an older run saved these vectors
                break
            table = parquet.read(ledger.folder / entry.files[0].name)
            self._parts.append((table["row"].to_numpy(), torch.from_numpy(columns.matrix(table["vector"]))))
            self._number += 1

    @property
    def _count(self) -> int:
        return sum(len(rows) for rows, _ in self._parts)

    def encode(
        self, encoder: TextEncoder, chunks: Iterable[Tokens], clock: Clock, *, counted: bool = True
    ) -> Generator[dict[str, Any], None, Floats]:
        """Encode texts that no earlier run saved. Yields counts of texts and times. Returns float32 vectors [n, m]."""
        left, unsaved, since, total = self._count, 0, time.monotonic(), 0
        yield {"rows": left if counted else 0, **clock.lap()}
        for tokens in chunks:
            batches = encoder.batches(tokens, begin=min(left, len(tokens)))
            while True:
                with clock.working():
                    batch = next(batches, None)
                if batch is None:
                    break
                self._parts.append((batch[0] + total, batch[1]))
                unsaved += 1
                yield {"rows": len(batch[0]) if counted else 0, **clock.lap()}
                if time.monotonic() - since >= SECONDS:
                    self._save(self._joined(unsaved))
                    unsaved, since = 0, time.monotonic()
            unsaved = min(1, len(self._joined(unsaved)[0]))
            left, total = max(0, left - len(tokens)), total + len(tokens)
        row_N, vector_NM = _joined(self._parts) if self._parts else (np.zeros(0), np.zeros((0, encoder.dimension)))
        if len(row_N) != total or (np.bincount(row_N.astype(np.int64), minlength=total) != 1).any():
            raise RuntimeError(f"{self._ledger.folder}: {self._key}: got vectors of {len(row_N)} texts, of {total}")
        vectors = np.empty(vector_NM.shape, np.float32)
        vectors[row_N.astype(np.int64)] = vector_NM
        return vectors

    def drop(self) -> None:
        if self._number:
            files.remove(self._ledger.folder / self._key)

    def _joined(self, last: int) -> tuple[Ints, Floats]:
        if not last:
            return np.zeros(0, np.int64), np.zeros((0, 0), np.float32)
        row_N, vector_NM = _joined(self._parts[-last:])
        self._parts[-last:] = [(row_N, torch.from_numpy(vector_NM))]
        return row_N, vector_NM

    def _save(self, part: tuple[Ints, Floats]) -> None:
        row_N, vector_NM = part
        table = pa.table({"row": row_N, "vector": columns.vector_column(vector_NM, pa.float32())})
        file = parquet.write(self._ledger.root, f"{self._key}/{self._number}.parquet", [table], table.schema)
        self._ledger.enter(
            f"{self._key}-saved-{self._number}", LedgerEntry((file,), {"begin": self._count - len(row_N)})
        )
        self._number += 1


def _joined(parts: list[tuple[Ints, torch.Tensor]]) -> tuple[Ints, Floats]:
    rows, vectors = zip(*parts, strict=True)
    return np.concatenate(rows), torch.cat([part.float().cpu() for part in vectors]).numpy()

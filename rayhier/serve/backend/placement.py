"""Encodes the documents of requests, chooses their leaves, and makes rows of the leaf map."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.corpus.passages import DocumentLayout
from rayhier.dataset.documents import document_texts
from rayhier.index.assign import Assigner
from rayhier.index.incoming import GivenDocuments, given_documents
from rayhier.model.encoded import Encoded
from rayhier.serve.backend.follower import Follower
from rayhier.serve.backend.queues import Batches
from rayhier.serve.metrics import Metrics
from rayhier.serve.threads import run_in, start_pools, yield_to_others
from rayhier.spec import InputError
from rayhier.storage.change_log import Change

TOGETHER = 64
"""Largest number of documents, of several requests, that are encoded together."""


class Placement:
    """Encodes documents and chooses their leaves, by the model and router of the version that requests read."""

    def __init__(self, follower: Follower, metrics: Metrics | None = None) -> None:
        self._follower = follower
        self._assigner = Assigner(self._follower.model.router, self._follower.spec, follower.manifest.model)
        start_pools()
        follower.model.load()
        self._check_thread, self._encode_thread = (
            ThreadPoolExecutor(1, name, yield_to_others) for name in ("check", "encode")
        )
        self._batches: Batches[GivenDocuments, pa.Table | InputError] = Batches(
            lambda requests: run_in(self._encode_thread, self._rows, requests), TOGETHER, "put", metrics
        )

    @property
    def assigner(self) -> Assigner:
        if self._assigner.router is not self._follower.model.router:
            self._assigner = Assigner(self._follower.model.router, self._follower.spec, self._follower.manifest.model)
        return self._assigner

    async def open_encoder(self) -> None:
        """Open the encoder, so that the first document does not wait for it."""
        await run_in(self._encode_thread, lambda: self._follower.model.text_encoder)

    async def place(self, documents: Sequence[Mapping[str, Any]]) -> tuple[pa.Table, list[str], Assigner]:
        """Make rows, and return them with the ids and the assigner of leaves. InputError if a document is wrong."""
        corpus, dimension = self._follower.spec.corpus, self._follower.manifest.dimension
        unit = self._follower.spec.encoder.similarity == "cosine"
        checked = await run_in(self._check_thread, given_documents, documents, corpus, dimension, unit=unit)
        assigner = self.assigner
        table, _ = await self._batches(checked, len(checked.table), checked.vector_NM is None)
        if isinstance(table, InputError):
            raise table
        return table, checked.ids, assigner

    async def place_again(self, table: pa.Table, assigner: Assigner | None) -> pa.Table:
        """Choose leaves for rows again, if the served router has changed since `assigner` placed them."""
        newest = self.assigner
        return table if newest is assigner else await run_in(self._encode_thread, newest.again, table)

    async def encode_again(self, changes: Sequence[Change]) -> list[pa.Table]:
        """Make rows of this index from the documents that another index's changes wrote: one table per such change.

        Undeclared fields are left out, and new fields are null. InputError if the documents do not fit this index.
        """
        return await run_in(self._encode_thread, self._encoded_again, changes)

    def _encoded_again(self, changes: Sequence[Change]) -> list[pa.Table]:
        layout = DocumentLayout.of(self._follower.spec.corpus)
        written = [made.rows for made in changes if made.rows is not None]
        tables = [layout.fitted(rows.filter(pc.equal(rows["rank"], 0))) for rows in written]
        requests = [GivenDocuments(table, table["doc_id"].to_pylist(), None) for table in tables]
        rows = self._rows(requests) if requests else []
        for table in rows:
            if isinstance(table, InputError):
                raise table
        return [table for table in rows if not isinstance(table, InputError)]

    def _rows(self, requests: Sequence[GivenDocuments]) -> list[pa.Table | InputError]:
        """Encode documents that lack vectors, and choose leaves for all. Returns rows or an error for each request."""
        vectors = [made.vector_NM for made in requests if made.vector_NM is not None]
        if vectors:
            encoded = Encoded(np.concatenate(vectors))
        else:
            texts = [text for made in requests for text in document_texts(made.table)]
            encoded = self._follower.model.encode(texts)
        rows, end, assign = list[pa.Table | InputError](), 0, self.assigner
        for made in requests:
            begin, end = end, end + len(made.table)
            try:
                rows.append(assign(made.table, encoded[begin:end]))
            except InputError as error:
                rows.append(error)
        return rows

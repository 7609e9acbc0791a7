"""Carry an index to a newly trained model: stored vectors are moved by a map into that model's space, and placed anew.

A map is learned from documents that both models embedded. Documents that the older index lacks, or has with another
text, are encoded. Everything else about the index is as if it were built; files of carried vectors say so.
Shapes: N documents, M embedding size.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats
from rayhier.dataset.documents import document_texts, language
from rayhier.index.assign import Assigner, leaf_counts
from rayhier.index.change import EMBEDDED_ROWS
from rayhier.index.gather import RoutedParts
from rayhier.index.incoming import BATCH
from rayhier.index.shards import write_rows
from rayhier.model.encoded import Encoded
from rayhier.model.vector_map import FEWEST, VectorMap
from rayhier.search.model import Model
from rayhier.spec import InputError
from rayhier.storage import columns, files
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import LeafMap, Shard
from rayhier.storage.paths import Location

SAMPLE = 2_000
"""Most documents from which a map is learned."""
ROWS = 16_384
"""Documents that are moved at a time."""
ROUTED_ROWS = 1_024
"""Rows in a row group of a routed part."""
MAP = "map"
"""Folder of an index with the map by which its vectors were carried."""
Hashes = npt.NDArray[np.uint64]


@dataclass
class Carried:
    """Rows of an index before they are gathered: routed parts of carried documents, shards of encoded ones."""

    parts: RoutedParts
    counts: list[int]
    """Carried rows of each leaf."""
    encoded: list[Shard] = field(default_factory=list)
    documents: int = 0
    """Number of carried documents."""
    kind: str = "none"
    cosine: float = 1.0
    """Mean cosine of moved and true vectors of documents that the map was not learned from (`VectorMap`)."""


class Carrier:
    """Moves the documents of an older index that are in a corpus too."""

    def __init__(self, corpus: Artifact, before: LeafMap, model: Model, fingerprint: str, scratch: Location) -> None:
        """Take a corpus, the older index, and the new model with its fingerprint; routed parts go below `scratch`.

        InputError where the model's router reads tokens, which no map knows.
        """
        if model.router.reader is not None:
            raise InputError("--carry: the router reads tokens, which are not stored; allowed: without --carry")
        self._corpus, self._before, self._model, self._scratch = corpus, before, model, scratch
        self._assign = Assigner(model.router, model.spec, fingerprint)
        self._fingerprint = fingerprint
        self._names = files.read_metadata(corpus.path(corpus.names("documents/")[0])).schema.to_arrow_schema().names
        stored = [before.columns(shard) for shard in before.manifest.shards[:1]]
        if missing := [name for name in self._names if name not in [*stored, self._names][0]]:
            raise InputError(f"--carry: the index that is served has no column {missing[0]}; allowed: without --carry")
        self._key = "parent" if "parent" in self._names else "doc_id"

    def carry(self, root: Location) -> Carried:
        """Learn the map, move what can be moved and encode the rest; shards of encoded documents go below `root`."""
        wanted = np.sort(np.concatenate([_hashes(table) for table in self._parts()]))
        moved = Carried(RoutedParts([], []), [0] * self._model.router.n_leaves)
        sample, x_NM = self._sample(wanted)
        if len(sample) < FEWEST:  # nothing to learn from
            self._encode_others(root, moved, np.zeros(0, np.uint64))
            return moved
        encoded, is_unit = self._model.encode(document_texts(sample)), self._model.spec.encoder.similarity == "cosine"
        learned = VectorMap.fit(x_NM, encoded.numpy, is_unit=is_unit)
        with files.filling(root / MAP) as folder:
            learned.save(folder, (self._before.manifest.model, self._fingerprint))
        moved.kind, moved.cosine = learned.kind, learned.cosine
        self._write(root, moved, sample, encoded)
        chosen, known = set(sample[self._key].to_pylist()), list[Hashes]()
        for table, hash_N, vector_NM in self._stored(wanted):
            known.append(hash_N)
            rest_N = np.array([name not in chosen for name in table[self._key].to_pylist()], bool)
            if rest_N.any():
                moves = Encoded.of(learned(vector_NM[rest_N]))
                self._route(moved, self._assign(table.filter(pa.array(rest_N)), moves))
        self._encode_others(root, moved, np.sort(np.concatenate(known)))
        return moved

    def _parts(self) -> Iterator[pa.Table]:
        return (files.read_table(self._corpus.path(name), self._names) for name in self._corpus.names("documents/"))

    def _stored(self, wanted: Hashes) -> Iterator[tuple[pa.Table, Hashes, Floats]]:
        """Yield documents of the older index that are wanted, their hashes [n] and vectors [n, m], some at a time."""
        for shard in self._before.manifest.shards:
            if not shard.rows:
                continue
            rows = self._before.read(shard, [*self._names, "rank", "vector"])
            rows = rows.filter(pc.equal(rows["rank"], 0))
            for begin in range(0, len(rows), ROWS):
                table = rows.slice(begin, ROWS)
                hash_N = _hashes(table.select(self._names))
                is_wanted_N = _among(hash_N, wanted)
                kept = table.filter(pa.array(is_wanted_N))
                yield kept.select(self._names), hash_N[is_wanted_N], columns.matrix(kept["vector"])

    def _sample(self, wanted: Hashes) -> tuple[pa.Table, Floats]:
        """Choose documents to learn from, by their ids' hashes, so that passages of one document stay together."""
        tables, vectors, places = list[pa.Table](), list[Floats](), list[Hashes]()
        share = min(1.0, 1.2 * SAMPLE / max(1, len(wanted)))
        for table, _, vector_NM in self._stored(wanted):
            place_N = _hashes(table.select([self._key]))
            near_N = place_N / 2.0**64 <= share
            tables.append(table.filter(pa.array(near_N)))
            vectors.append(vector_NM[near_N])
            places.append(place_N[near_N])
        if not tables:
            return next(self._parts()).slice(0, 0), np.zeros((0, 0), np.float32)
        place_N = np.concatenate(places)
        kept_N = place_N < np.sort(place_N)[SAMPLE] if len(place_N) > SAMPLE else np.ones(len(place_N), bool)
        return pa.concat_tables(tables).filter(pa.array(kept_N)), np.concatenate(vectors)[kept_N]

    def _encode_others(self, root: Location, moved: Carried, known: Hashes) -> None:
        """Encode the documents that the older index does not have, or has with other texts or fields."""
        for table in self._parts():
            others = table.filter(pa.array(~_among(_hashes(table), known)))
            for begin in range(0, len(others), BATCH):
                batch = others.slice(begin, BATCH)
                self._write(root, moved, batch, self._model.encode(document_texts(batch)))

    def _write(self, root: Location, moved: Carried, documents: pa.Table, encoded: Encoded) -> None:
        name = f"{EMBEDDED_ROWS}{len(moved.encoded):05d}.parquet"
        rows = self._assign(documents, encoded)
        words = language(self._corpus) if self._model.spec.index.words else None
        moved.encoded.append(write_rows(root, name, rows, words=words))

    def _route(self, moved: Carried, rows: pa.Table) -> None:
        name = f"{len(moved.parts.paths):05d}.parquet"
        slices = [rows.slice(begin, ROUTED_ROWS) for begin in range(0, len(rows), ROUTED_ROWS)]
        file = files.write_parquet(self._scratch, name, slices, rows.schema)
        moved.parts.paths.append(self._scratch / name)
        moved.parts.digests.append(file.sha256)
        added = leaf_counts(rows["leaf"].to_numpy(), len(moved.counts))
        moved.counts = [before + more for before, more in zip(moved.counts, added, strict=True)]
        moved.documents += int(pc.sum(pc.equal(rows["rank"], 0)).as_py())


def _hashes(table: pa.Table) -> Hashes:
    """Hash each row [n] of a table, by all of its values."""
    rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    digests = b"".join(
        hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=8).digest() for row in rows
    )
    return np.frombuffer(digests, np.uint64)


def _among(hash_N: Hashes, sorted_N: Hashes) -> npt.NDArray[np.bool_]:
    """Return for each hash [n] whether it is among sorted ones."""
    if not len(sorted_N):
        return np.zeros(len(hash_N), bool)
    place_N = np.minimum(np.searchsorted(sorted_N, hash_N), len(sorted_N) - 1)
    return np.asarray(sorted_N[place_N] == hash_N)

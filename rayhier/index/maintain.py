"""Maintenance: split leaves that grew too large, remove leaves that shrank, and move documents (our addition).

The limits are 1.5 times and a quarter of the mean rows in a rebuilt index. Large leaves are cut by 2-means, as in
SPFresh's LIRE. Centroids of changed leaves and of leaves near them become the means of their documents, which are
placed again. Nothing is trained, and no other document is read or moved.

Shapes: L leaves, S leaves to split, N documents read, M embedding size.
"""

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.words import word_hashes
from rayhier.index.assign import Assigner, leaf_sizes
from rayhier.index.change import with_shards, without_rows, write_ids, writing
from rayhier.index.shards import write_rows
from rayhier.index.stats import SHRUNK, Due, largest
from rayhier.model.layers import normalized
from rayhier.model.opened_router import LearnedIvf, OpenedRouter, leading, write_router
from rayhier.model.placing import choose
from rayhier.model.revise import give_up, move, resized, split
from rayhier.model.spill import CANDIDATES
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.segment.segment import Segment, leaf_pairs
from rayhier.spec import InputError, JobSpec
from rayhier.spec.search import CACHE_BYTES
from rayhier.storage import columns, files, leaf_map
from rayhier.storage.files import File
from rayhier.storage.leaf_map import LeafMap, Manifest, Revision, key_of
from rayhier.storage.paths import Location

NEAR, NEARBY = 16, 256
"""NEAR: leaves near a changed leaf whose documents are routed again. NEARBY: leaves from which a document chooses."""
ROUNDS, STEPS = 6, 8
"""ROUNDS: largest number of times that leaves which are too large are split. STEPS: iterations of 2-means per split."""
AT_ONCE = 1_000_000
LOPSIDED = 0.1
"""Least share of a split leaf's documents in each half. If 2-means makes a smaller half, the halves become equal."""
SAME = 1e-3
"""Distance of two centroids up to which a leaf is not split, because its documents have about the same vector."""
PIECE = 1024


def maintain(
    root: Location, router: OpenedRouter, spec: JobSpec, most: int = AT_ONCE, skip: int = 0, of: Manifest | None = None
) -> LeafMap | None:
    """Publish a version whose leaves are about as large as in a rebuilt index. None if searches get no cheaper.

    `router` belongs to the newest version, and to the manifest `of`, if given. About `most` documents are read, so only
    the largest leaves may change, without the first `skip`, which did not help before. InputError if leaves cannot
    be split, or the index was changed meanwhile.
    """
    router = checked(router, spec)
    with writing(root) as newest:
        if of is not None and of.revision != newest.manifest.revision:
            raise InputError(
                f"maintain: leaves were split or merged by version {newest.manifest.version}, after version "
                f"{of.version} was read. Nothing was changed. Run it again"
            )
        due = Due.of(newest.manifest, spec)
        if not due.advice():
            return None
        region = Region(newest, router, due, spec, most, skip)
        region.split_grown()
        region.give_up_shrunk()
        return _published(newest, region, spec) if region.pays else None


def can_maintain(router: OpenedRouter, spec: JobSpec) -> bool:
    with contextlib.suppress(InputError):
        return checked(router, spec) is router
    return False


def checked(router: OpenedRouter, spec: JobSpec) -> LearnedIvf:
    """Return `router` unchanged. InputError if the router's leaves cannot be split."""
    if not isinstance(router, LearnedIvf):
        raise InputError(f"router.type: got {spec.router.type}, whose leaves do not split; allowed: learned_ivf")
    return router


def leaves_at_once(due: Due, documents: int) -> int:
    """Return the number of leaves that can change if about `documents` documents are read."""
    return max(1, int(documents / ((NEAR + 1) * due.mean)))


class Region:
    """Documents in memory from leaves that must change and from leaves near them, and the changing router."""

    def __init__(self, there: LeafMap, router: LearnedIvf, due: Due, spec: JobSpec, documents: int, skip: int) -> None:
        """Read about `documents` documents, from the largest leaves after the first `skip`."""
        self._counted_L, revision = np.array(there.manifest.counts), there.manifest.revision
        self._size_L = self._counted_L.copy()
        grown = due.grown[np.argsort(-self._size_L[due.grown], kind="stable")]
        changing = np.concatenate([grown, due.shrunk])[skip : skip + leaves_at_once(due, documents)]
        self._mean, self._spec = due.mean, spec
        self.router, self._used = resized(router), int(router.in_use.sum())
        self.origins = list(range(router.n_leaves)) if revision is None else list(revision.origins)
        """For each leaf, the leaf of the model that it was split from."""
        self._whole_L = np.zeros(router.n_leaves, dtype=bool)  # leaves of which all documents are in memory
        self._whole_L[changing] = self._whole_L[self._near(changing, 2 * NEAR)] = True
        self.stored = MappedRows(there)
        rows = self.stored.in_leaves(self._whole_L)
        self._id_N = rows["id"].combine_chunks()
        self._unit_NM = normalized(columns.matrix(rows["vector"]))
        self._before_N2 = leaf_pairs(rows["leaves"].combine_chunks())
        self._leaf_N2 = self._before_N2.copy()

    @property
    def pays(self) -> bool:
        """True if searches compare fewer rows than before, or leaves were removed."""
        fewer = (self._size_L**2).sum() < (self._counted_L**2).sum()
        return bool(len(self.moved)) and bool(fewer or self.router.in_use.sum() < self._used)

    @property
    def moved(self) -> pa.Array:
        """Ids, as users give them, of documents that lie in other leaves than before."""
        changed_N = (np.sort(self._leaf_N2, axis=1) != np.sort(self._before_N2, axis=1)).any(axis=1)
        return self._id_N.filter(pa.array(changed_N)).unique()

    def split_grown(self) -> None:
        refused = set[int]()
        for _ in range(ROUNDS):
            large = np.flatnonzero(self._whole_L & (self._size_L > largest(self._mean)))
            leaf_S = [leaf for leaf in large.tolist() if leaf not in refused]
            if not leaf_S:
                break
            centroid_S2M = self._halves(leaf_S)
            apart_S = np.linalg.norm(centroid_S2M[:, 0] - centroid_S2M[:, 1], axis=1) > SAME
            refused |= {leaf for leaf, apart in zip(leaf_S, apart_S.tolist(), strict=True) if not apart}
            if not apart_S.any():
                break
            leaf_S = [leaf for leaf in leaf_S if leaf not in refused]
            size_S = self._size_L[leaf_S]
            self.router, number_S = split(self.router, leaf_S, centroid_S2M[apart_S])
            further = self.router.n_leaves - len(self._size_L)
            self._size_L, self._whole_L = np.pad(self._size_L, (0, further)), np.pad(self._whole_L, (0, further))
            self.origins += [0] * further
            for before, after in zip(leaf_S, number_S, strict=True):
                self.origins[after], self._whole_L[after] = self.origins[before], True
            self._settle(np.array([*leaf_S, *number_S]))
            refused |= {leaf for leaf, size in zip(leaf_S, size_S, strict=True) if self._size_L[leaf] >= size}

    def give_up_shrunk(self) -> None:
        used_L = self.router.in_use
        small = np.flatnonzero(self._whole_L & used_L & (self._size_L < SHRUNK * self._mean))
        if len(small) and len(small) < used_L.sum() - NEAR:
            near = self._near(small, NEAR)
            give_up(self.router, small.tolist())
            self._settle(small, near)

    def _halves(self, leaf_S: Sequence[int]) -> Floats:
        """Cut all leaves to split by 2-means of their documents. Returns the halves' unit centroids [s, 2, m]."""
        place_L = np.full(len(self._size_L), -1)
        place_L[list(leaf_S)] = np.arange(len(leaf_S))
        row_A, leaf_A = _rows(self._leaf_N2)
        part_A = place_L[leaf_A]
        order_A = np.argsort(part_A, kind="stable")
        order_A = order_A[part_A[order_A] >= 0]
        return two_means(self._unit_NM[row_A[order_A]], part_A[order_A], len(leaf_S))

    def _settle(self, changed: Ints, near: Ints | None = None) -> None:
        """Move centroids of changed leaves, and of leaves near them, to their documents' means. Route the documents."""
        leaves = np.union1d(changed, self._near(changed, NEAR) if near is None else near)
        here_L = np.zeros(len(self._size_L), dtype=bool)
        here_L[leaves] = True
        row_N, used_L = np.flatnonzero(here_L[self._leaf_N2].any(axis=1)), self.router.in_use
        leaf_N = self._placed(row_N, 1)[:, 0]
        whole = leaves[self._whole_L[leaves] & used_L[leaves]]
        place_L = np.full(len(self._size_L), -1)
        place_L[whole] = np.arange(len(whole))
        part_N = place_L[leaf_N]
        sum_SM = sums(self._unit_NM[row_N[part_N >= 0]], part_N[part_N >= 0], len(whole))
        some_S = sum_SM.any(axis=1)
        move(self.router, whole[some_S].tolist(), normalized(sum_SM[some_S]))
        self._size_L -= _sizes(self._leaf_N2[row_N], len(self._size_L))
        self._leaf_N2[row_N] = self._placed(row_N, self._spec.leaves_per_document)
        self._size_L += _sizes(self._leaf_N2[row_N], len(self._size_L))

    def _placed(self, row_N: Ints, count: int) -> Ints:
        """Choose leaves [n, 2] for documents as the router does, among leaves near each document's first leaf."""
        cells, first_N = self.router.cells, self._leaf_N2[row_N, 0]
        order_N = np.argsort(first_N, kind="stable")
        leaf_P, size_P = np.unique(first_N, return_counts=True)
        near_PC = self._nearest(leaf_P, NEARBY)
        unit_NM, ends = self._unit_NM[row_N[order_N]], np.cumsum(size_P).tolist()
        leaf_NC = np.empty((len(row_N), min(CANDIDATES, near_PC.shape[1])), np.int64)
        for near_C, begin, end in zip(near_PC, [0, *ends], ends, strict=False):
            score_AC = unit_NM[begin:end] @ cells.centroid_LM[near_C].T - cells.price_L[near_C]
            leaf_NC[order_N[begin:end]] = near_C[leading(score_AC, leaf_NC.shape[1])[0]]
        pick_NR = choose(cells, self._unit_NM[row_N], leaf_NC, count)
        leaf_NR = np.take_along_axis(leaf_NC, pick_NR, axis=1)
        return np.stack([leaf_NR[:, 0], leaf_NR[:, -1]], axis=1)

    def _near(self, leaves: Ints, count: int) -> Ints:
        return np.unique(self._nearest(leaves, count))

    def _nearest(self, leaves: Ints, count: int) -> Ints:
        """Find the `count` leaves in use [n, count] that are nearest to the centroids of some leaves [n]."""
        centroid_LM, used = self.router.cells.centroid_LM, np.flatnonzero(self.router.in_use)
        count, pieces = min(count, len(used)), range(0, len(leaves), PIECE)
        near = [leading(centroid_LM[leaves[begin : begin + PIECE]] @ centroid_LM[used].T, count)[0] for begin in pieces]
        return np.concatenate([np.zeros((0, count), np.int64), *(used[place_XC] for place_XC in near)])


def two_means(unit_AM: Floats, part_A: Ints, parts: int) -> Floats:
    """Cut each part of unit vectors [a, m] in two by spherical 2-means. Returns unit centroids [parts, 2, m].

    `part_A` [a] is each vector's part, ascending. Each part has at least two vectors. If a half would have less than a
    tenth of its part, the part is cut at the median instead.
    """
    size_S = np.bincount(part_A, minlength=parts)
    first_S = np.cumsum(size_S) - size_S

    def farthest(from_SM: Floats) -> Floats:
        near_A = np.vecdot(unit_AM, from_SM[part_A])
        return np.asarray(unit_AM[np.lexsort((near_A, part_A))[first_S]])

    one_SM = farthest(unit_AM[first_S])
    centroid_S2M = np.stack([one_SM, farthest(one_SM)], axis=1)
    for _ in range(STEPS):
        nearer_A = np.vecdot(unit_AM, (centroid_S2M[:, 0] - centroid_S2M[:, 1])[part_A])
        second_A = nearer_A < 0
        share_S = np.bincount(part_A, second_A, parts) / size_S
        rank_A = np.empty(len(part_A), np.int64)
        rank_A[np.lexsort((nearer_A, part_A))] = np.arange(len(part_A)) - first_S[part_A]
        lopsided_S = (share_S < LOPSIDED) | (share_S > 1 - LOPSIDED)
        second_A = np.where(lopsided_S[part_A], rank_A < size_S[part_A] // 2, second_A)
        centroid_S2M = normalized(sums(unit_AM, 2 * part_A + second_A, 2 * parts)).reshape(parts, 2, -1)
    return centroid_S2M


def sums(vector_AM: Floats, part_A: Ints, parts: int) -> Floats:
    order_A, size_S = np.argsort(part_A, kind="stable"), np.bincount(part_A, minlength=parts)
    sum_SM, some_S = np.zeros((parts, vector_AM.shape[1]), np.float32), size_S > 0
    if len(part_A):
        sum_SM[some_S] = np.add.reduceat(vector_AM[order_A], (np.cumsum(size_S) - size_S)[some_S], axis=0)
    return sum_SM


class MappedRows:
    """Rows of a version in the mapped files of searches. Only the wanted rows are read."""

    def __init__(self, there: LeafMap) -> None:
        self._segments = LeafScan.mapped(there, cache_bytes=CACHE_BYTES).segments

    def in_leaves(self, leaf_L: Bools) -> pa.Table:
        """Read `id`, `leaves` and `vector` of the documents that have a row in some leaves, each document once."""
        tables = []
        for segment in self._segments:
            table = segment.table
            here_N = leaf_L[leaf_pairs(table["leaves"].combine_chunks())].any(axis=1)
            row_A = np.flatnonzero(here_N & (table["rank"].to_numpy() == 0))
            shown = table.select([key_of(table.column_names), "leaves"]).rename_columns(["id", "leaves"])
            tables.append(_with_vectors(shown, segment, row_A))
        return pa.concat_tables(tables)

    def of(self, names: pa.Array) -> pa.Table:
        """Read all columns of documents with given ids: a row for each document or passage."""
        hash_X, tables = word_hashes(names.to_pylist()), []
        for segment in self._segments:
            table = _with_vectors(segment.table, segment, np.sort(segment.with_ids(hash_X)))
            tables.append(table.filter(pc.is_in(table[key_of(table.column_names)], names)))
        return pa.concat_tables(tables)


def _with_vectors(table: pa.Table, segment: Segment, row_A: Ints) -> pa.Table:
    vectors = columns.vector_column(segment.vectors(row_A), pa.float32())
    return table.take(pa.array(row_A)).append_column("vector", pa.chunked_array([vectors]))


def _all_rows(leaves: pa.ListArray) -> pa.Table:
    document_A = pc.list_parent_indices(leaves).to_numpy()
    rank_A = np.arange(len(document_A)) - np.searchsorted(document_A, document_A)
    return pa.table({"leaf": leaves.flatten(), "rank": rank_A})


def _rows(leaf_N2: Ints) -> tuple[Ints, Ints]:
    two_N = leaf_N2[:, 0] != leaf_N2[:, 1]
    row_A = np.concatenate([np.arange(len(leaf_N2)), np.flatnonzero(two_N)])
    return row_A, np.concatenate([leaf_N2[:, 0], leaf_N2[two_N, 1]])


def _sizes(leaf_N2: Ints, leaves: int) -> Ints:
    return np.bincount(_rows(leaf_N2)[1], minlength=leaves)


def _published(newest: LeafMap, region: Region, spec: JobSpec) -> LeafMap:
    root, manifest, named = newest.root, newest.manifest, region.moved.sort()
    assign = Assigner(region.router, spec, manifest.model)
    rows = region.stored.of(named)
    table, token = assign.again(rows), uuid.uuid4().hex[:12]
    shard = write_rows(root, f"data/moved-{token}.parquet", table, words=manifest.words)
    before = _all_rows(rows["leaves"].combine_chunks())
    count_L = np.pad(manifest.counts, (0, region.router.n_leaves - len(manifest.counts)))
    count_L = count_L - leaf_sizes(before, len(count_L)) + leaf_sizes(table, len(count_L))
    region.router.log_size_L[:] = np.log(count_L + 0.5)
    revision = Revision(files=_written(root, f"routers/{token}", region.router), origins=region.origins)
    removal = write_ids(root, named)

    def change(now: LeafMap) -> Manifest:
        base = now.manifest
        between = range(manifest.version + 1, base.version + 1)
        if any(LeafMap.open(root, number).manifest.change != "pack" for number in between):  # it moves no document
            raise InputError(
                f"maintain: version {base.version} ({base.change}) was published meanwhile. Nothing was changed. Run "
                "it again"
            )
        further = [0] * (len(count_L) - len(base.counts))
        padded = base.model_copy(update={"counts": [*base.counts, *further]})
        without = without_rows(padded, before, removal, len(named), "maintain")
        return with_shards(without, [shard], base.version + 1, "maintain").model_copy(update={"revision": revision})

    return leaf_map.commit(root, change)


def _written(root: Location, folder: str, router: LearnedIvf) -> list[File]:
    written = []
    with tempfile.TemporaryDirectory() as temporary:
        write_router(router.config, router.weights, Path(temporary))
        for path in sorted(Path(temporary).iterdir()):
            files.write(root / folder / path.name, partial(shutil.copyfile, path))
            written.append(File(name=f"{folder}/{path.name}", bytes=path.stat().st_size, sha256=files.digest(path)))
    return written

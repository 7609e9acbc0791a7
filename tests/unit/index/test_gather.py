"""Shards gathered from routed parts equal shards of all rows at once. The number of reads grows with rows."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rayhier.executor.here import Here
from rayhier.index import describe, stage
from rayhier.index.display import DisplayTree
from rayhier.index.shards import write_shard
from rayhier.storage import parquet
from rayhier.storage.leaf_map import LeafMap, Manifest, ranges

from ...draws import unit
from ...toys import job
from ..search.maps import leaf_rows

ROWS, LEAVES, SHARDS, PARTS, M = 1_500, 24, 4, 8, 4


@pytest.fixture
def reads(monkeypatch):
    """Files opened and row groups read, as a list of one number."""
    source, read, group = parquet._source, parquet.read, parquet.pq.ParquetFile.read_row_group
    count = [0]

    def add(number, made):
        count[0] += number
        return made

    def whole(path, *given, **named):
        return add(parquet.pq.read_metadata(path).num_row_groups, read(path, *given, **named))

    monkeypatch.setattr(parquet, "_source", lambda path: add(1, source(path)))
    monkeypatch.setattr(parquet, "read", whole)
    monkeypatch.setattr(parquet.pq.ParquetFile, "read_row_group", lambda *given: add(1, group(*given)))
    return count


class Build:
    """Routed parts of an index with `size` times the least number of parts, leaves and shards."""

    def __init__(self, folder, size):
        self.attempt = SimpleNamespace(root=folder, scratch=folder / "scratch")
        self.spec = job(index={"shards": size * SHARDS}, cluster={"index": {"workers": 2}})
        rng, n = np.random.default_rng(0), size * ROWS * PARTS
        leaves, self.leaves = rng.integers(0, size * LEAVES, n), size * LEAVES
        texts = [
            f"w{a} w{b} own{leaf}"
            for leaf, (a, b) in zip(leaves.tolist(), rng.integers(0, 500, (n, 2)).tolist(), strict=True)
        ]
        ids = [f"d{number:06d}" for number in range(n)]
        parts = [
            leaf_rows([[leaf] for leaf in leaves[rows].tolist()], unit(0, ROWS, M), doc_id=ids[rows], text=texts[rows])
            for rows in (slice(begin, begin + ROWS) for begin in range(0, n, ROWS))
        ]
        self.all, self.counts = pa.concat_tables(parts), np.bincount(leaves, minlength=self.leaves).tolist()
        names = [f"{number}.parquet" for number in range(len(parts))]
        groups = (parquet.slices(part, stage.ROUTED_ROWS) for part in parts)
        files = [parquet.write(folder / "r", *each, parts[0].schema) for each in zip(names, groups, strict=True)]
        self.parts = stage.RoutedParts([folder / "r" / name for name in names], [file.sha256 for file in files])

    def gather(self):
        return stage._gather(Here(), self.spec, self.attempt, self.parts, self.counts, words="english")


@pytest.fixture
def build(tmp_path):
    return Build(tmp_path / "index", 1)


def test_shards_are_those_of_all_rows(build, tmp_path):
    shards = build.gather()
    cuts = ranges(build.counts, SHARDS)
    assert len(shards) == len(cuts) == SHARDS
    for shard, cut in zip(shards, cuts, strict=True):
        inside = pc.is_in(build.all["leaf"], pa.array(range(*cut), pa.int32()))
        rows, name = [build.all.filter(inside)], shard.file.name
        wanted = write_shard(tmp_path / "whole", name, rows, range(*cut), build.counts)
        assert shard.model_dump(exclude={"file"}) == wanted.model_dump(exclude={"file"})
        assert parquet.read(build.attempt.root / name).equals(parquet.read(tmp_path / "whole" / name))


def test_what_is_done_is_not_made_again(build, reads):
    shards, first = build.gather(), reads[0]
    assert build.gather() == shards
    assert reads[0] == first
    (build.attempt.scratch / "ledger" / "shard-00002.json").unlink()
    assert build.gather() == shards
    assert reads[0] - first <= 2 * len(list(build.attempt.scratch.glob("divided-*")))
    build.parts.digests[0] = "routed again"
    assert build.gather() == shards
    assert reads[0] > 2 * first


def test_reads_grow_with_rows(tmp_path, reads, monkeypatch):
    """Parts, shards, leaves, buckets of words and rows double."""
    monkeypatch.setattr(describe, "ROWS_A_BUCKET", 1_000)
    monkeypatch.setattr(describe, "WORD_ROWS", 1_000)
    gathered, described = [], []
    for size in (1, 2, 4):
        build = Build(tmp_path / str(size), size)
        begun = reads[0]
        shards = build.gather()
        gathered.append(reads[0] - begun)
        fixed = {"version": 1, "parent": None, "model": "m", "metric": "inner_product", "vectors": "float16"}
        manifest = Manifest(**fixed, dimension=M, documents=len(build.all), counts=build.counts, shards=shards)
        tree = DisplayTree([np.zeros(build.leaves, np.int64)], grouped=False)
        describe.describe(LeafMap(build.attempt.root, manifest), tree)
        described.append(reads[0] - begun - gathered[-1])
    for counts in (gathered, described):
        assert max(later / earlier for earlier, later in pairwise(counts)) <= 2.2, counts

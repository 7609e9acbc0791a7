"""Readers open the newest manifest; a version number is taken once."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from rayhier.spec import InputError
from rayhier.storage import files, leaf_map, parquet, schemas
from rayhier.storage.files import seal
from rayhier.storage.leaf_map import LeafMap, Manifest, check_built, publish, republish, versions
from rayhier.storage.shard import Removal, Shard

from ..search.maps import leaf_rows


def write(root, version=1):
    vectors = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], np.float16)
    rows = leaf_rows([[0], [0], [2]], vectors, doc_id=["a", "b", "c"], text=["x", "y", "z"])
    file = parquet.write(root, "data/0.parquet", [rows], rows.schema)
    shard = Shard(file=file, rows=3, documents=3, leaves=[0, 2], offsets=[0, 2, 3], log_prob=-0.2)
    about = {"parent": None, "model": "m" * 12, "dimension": 2, "metric": "inner_product", "vectors": "float16"}
    return Manifest(version=version, documents=3, counts=[2, 0, 1], shards=[shard], **about)


def test_the_built_version_is_what_evaluation_measures(folder):
    index = SimpleNamespace(root=folder, folder="work/index/ba9876543210")
    publish(folder, write(folder, 2))
    with pytest.raises(InputError, match=r"ba9876543210: vacuum removed version 1, .* allowed: --fresh --stage"):
        check_built(index)
    publish(folder, write(folder))
    check_built(index)


def test_a_damaged_file_of_removed_ids_is_named(folder):
    """Though it can be read, and would remove another document."""
    file, other = (
        parquet.write(folder, "removed/0.parquet", [pa.table({"doc_id": [name]})], schemas.IDS) for name in "ab"
    )
    assert file.sha256 != other.sha256
    manifest = write(folder).model_copy(update={"removed": [Removal(file=file, ids=1, rows=1, since=2)]})
    publish(folder, manifest)
    with pytest.raises(InputError, match=r"removed/0\.parquet: .* published"):
        LeafMap.open(folder).read(manifest.shards[0], verify=False)


def test_a_version_whose_file_is_cut_or_gone_is_not_published_again(folder):
    publish(folder, write(folder))
    path = folder / "data/0.parquet"
    for damage in (lambda: files.replace(path, path.read_bytes()[:-1]), path.unlink):
        damage()
        with pytest.raises(InputError, match=r"0\.parquet: .*Nothing was published\. Take another version"):
            republish(folder, 1)
    assert versions(folder) == [1]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a file that rayhier wrote"),
        (b'{"format": 2}', "not a file that rayhier wrote"),
        (seal({"format": 2}), "not a manifest"),
        (seal({"format": 3, "new": "field"}), "format 3, not 2:"),
        (seal({"format": 2}).replace(b": 2", b": 3"), "damaged or edited: its bytes"),
        (seal({"format": 2}) + b" ", "damaged or edited: its bytes"),
    ],
)
def test_a_damaged_manifest_is_named(folder, data, said):
    files.replace(folder / "manifests" / "v000001.json", data)
    with pytest.raises(InputError, match=rf"v000001\.json: {said}"):
        LeafMap.open(folder)


def test_vectors_that_a_map_moved_are_refused_by_name(folder):
    files.replace(folder / "manifests/v000001.json", seal(write(folder).model_dump(mode="json") | {"carried": 2}))
    with pytest.raises(InputError, match=r"v000001\.json: rayhier run --carry .* builds the index again"):
        LeafMap.open(folder)


def test_many_leaves_take_little_room_in_a_manifest(folder):
    """Those that lists of numbers were written for are read as before."""
    manifest, leaves = write(folder), list(range(0, 40_000, 3))
    many = manifest.shards[0].model_copy(update={"leaves": leaves, "offsets": [*range(len(leaves)), 70_000]})
    wide = manifest.model_copy(update={"shards": [many]})
    publish(folder, wide)
    path = folder / "manifests/v000001.json"
    assert len(path.read_bytes()) < 3_000
    leaf_map._parsed_once.cache_clear()  # as in another process
    read = LeafMap.open(folder).manifest
    assert read == wide
    assert read.shards[0].within(range(3, 9)) == (1, 3)
    path.unlink()
    path.write_bytes(seal({**wide.model_dump(mode="json"), "shards": [many.model_dump()]}))
    assert LeafMap.open(folder).manifest == wide

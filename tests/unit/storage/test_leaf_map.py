"""Readers open the newest manifest; a version number is taken once."""

import pyarrow as pa
import pytest

from rayhier.spec import InputError
from rayhier.storage import files, schemas
from rayhier.storage.leaf_map import LeafMap, Manifest, Shard, publish

ROWS = {
    "doc_id": ["a", "b", "c"],
    "leaf": [0, 0, 2],
    "rank": [0, 0, 0],
    "leaves": [[0], [0], [2]],
    "log_prob": [-0.1, -0.2, -0.3],
    "vector": [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]],
    "title": ["", "", ""],
    "text": ["x", "y", "z"],
}


def write(root, version=1):
    schema = schemas.leaf_map(2, "float16")
    file = files.write_parquet(root, "data/0.parquet", [pa.table(ROWS, schema=schema)], schema)
    return Manifest(
        version=version,
        parent=None,
        model="m" * 12,
        dimension=2,
        metric="inner_product",
        vectors="float16",
        documents=3,
        counts=[2, 0, 1],
        shards=[Shard(file=file, rows=3, first_leaf=0, offsets=[0, 2, 2, 3])],
    )


def test_publish_and_open(tmp_path):
    manifest = write(tmp_path)
    assert publish(tmp_path, manifest)
    leaf_map = LeafMap.open(tmp_path)
    assert leaf_map.manifest == manifest
    table = leaf_map.read(manifest.shards[0], ["doc_id", "leaf"])
    assert table.to_pydict() == {"doc_id": ["a", "b", "c"], "leaf": [0, 0, 2]}


def test_a_version_is_published_once(tmp_path):
    manifest = write(tmp_path)
    assert publish(tmp_path, manifest)
    assert not publish(tmp_path, manifest.model_copy(update={"documents": 99}))
    assert LeafMap.open(tmp_path).manifest.documents == 3


def test_the_newest_version_is_opened(tmp_path):
    for version in (9, 10, 2):
        publish(tmp_path, write(tmp_path, version))
    assert LeafMap.open(tmp_path).manifest.version == 10


def test_no_manifest(tmp_path):
    with pytest.raises(InputError, match="holds no manifest"):
        LeafMap.open(tmp_path)


def test_a_newer_format_is_refused(tmp_path):
    files.write_json(tmp_path / "manifests" / "v000001.json", {"format": 2, "new": "field"})
    with pytest.raises(InputError, match=r"v000001\.json: format 2; this version reads 1"):
        LeafMap.open(tmp_path)


def test_a_damaged_shard_is_named(tmp_path):
    manifest = write(tmp_path)
    publish(tmp_path, manifest)
    data = bytearray((tmp_path / "data/0.parquet").read_bytes())
    data[20] ^= 1
    (tmp_path / "data/0.parquet").write_bytes(data)
    with pytest.raises(InputError, match=r"0\.parquet: SHA-256"):
        LeafMap.open(tmp_path).read(manifest.shards[0], ["doc_id"])


@pytest.mark.parametrize(
    ("text", "said"), [("", "not JSON"), ("{", "not JSON"), ('{"format": 1}', "no manifest"), ("[]", "no manifest")]
)
def test_a_damaged_manifest_is_named(tmp_path, text, said):
    files.replace(tmp_path / "manifests" / "v000001.json", text.encode())
    with pytest.raises(InputError, match=rf"v000001\.json: {said}"):
        LeafMap.open(tmp_path)

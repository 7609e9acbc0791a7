"""What a writer wrote is published whole or not at all."""

import pytest

from rayhier.index import change
from rayhier.index.vacuum import vacuum
from rayhier.index.verify import verify
from rayhier.spec import InputError
from rayhier.storage import files, leaf_map
from rayhier.storage.leaf_map import LeafMap

from .changes import FACTOR, batch, content
from .conftest import N


@pytest.mark.parametrize("cut", [False, True])
def test_a_version_whose_files_are_gone_or_cut_is_not_published(made, cut):
    def unlucky():
        yield batch(["a"])[0]
        yield batch(["c"])[0]  # the file of the first is there, that of this one may be on its way
        name = next(name for name in files.below(made.root) if "data/added-" in name)
        data = (made.root / name).read_bytes()
        (made.root / name).unlink()
        if cut:
            files.replace(made.root / name, data[:-1])
        yield batch(["b"])[0]

    with pytest.raises(InputError, match="added-"):
        change.add(made.root, made.assign, unlucky(), FACTOR)
    assert verify(made.root) == [1]


def test_what_was_refused_leaves_no_files(made):
    before = files.below(made.root)
    with pytest.raises(InputError, match="more than once"):
        change.add(made.root, made.assign, batch(["a"]) + batch(["b"]) + batch(["a"], 3), FACTOR)
    assert files.below(made.root) == before


def test_a_damaged_newest_manifest_is_left_behind_by_a_rollback(made):
    before = content(LeafMap.open(made.root))
    change.delete(made.root, ["d001"])
    path = made.root / "manifests" / "v000002.json"
    path.write_bytes(path.read_bytes()[:-10])
    for refused in (LeafMap.open, vacuum):
        with pytest.raises(InputError, match=r"v000002\.json"):
            refused(made.root)
    assert content(change.rollback(made.root, 1)) == before
    assert vacuum(made.root).versions == [1, 2]
    assert verify(made.root) == [3]


def test_files_stay_where_an_error_may_hide_that_they_were_published(made, monkeypatch):
    publish = leaf_map.publish

    def broken(root, manifest):
        publish(root, manifest)
        raise OSError(104, "Connection reset by peer")

    monkeypatch.setattr(leaf_map, "publish", broken)
    with pytest.raises(OSError, match="Connection reset"):
        change.add(made.root, made.assign, batch(["a"]), FACTOR)
    assert verify(made.root) == [1, 2]
    assert LeafMap.open(made.root).manifest.documents == N + 1

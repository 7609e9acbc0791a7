"""A workdir that rayhier 0.2.0 made opens, with the changes that its server had not folded when it was killed."""

import shutil
from pathlib import Path

import rayhier
from rayhier.storage.change_log import ChangeLog

from ..conftest import leaf_map_of

ASSET = Path(__file__).parents[1] / "assets" / "workdir-0.2.0"


def test_a_workdir_of_0_2_0_is_searched_with_its_tail(tmp_path: Path) -> None:
    work = shutil.copytree(ASSET / "work", tmp_path / "work")
    newest = leaf_map_of(work)
    assert (newest.manifest.version, newest.manifest.documents) == (4, 62)
    assert [change.number for change in ChangeLog(newest.root).after(newest.manifest.log)] == [2, 3, 4, 5]
    with rayhier.open(work) as index:
        assert len(index) == 63
        heron = index.search("heron", mode="bm25")
        assert {hit.id for hit in heron} == {"new1", "d5"}
        assert index.search("oakleaf folded", mode="bm25")[0].id == "d4"
        assert index.search(index.encode(["another fernwood"])[0], mode="dense", k=1)[0].id == "new2"
        assert index.search("another fernwood")[0].id == "new2"
        found = {document.id for document in index.documents()}
        assert {"d3", "d6", "d60"}.isdisjoint(found)
        assert {"d5", "d61", "new1", "new2"} <= found

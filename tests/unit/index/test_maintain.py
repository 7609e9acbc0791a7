"""Leaves of a version that are split and given up: the same documents, found as before, in leaves of about one size."""

import sys
from functools import partial

import numpy as np
import pytest

from rayhier.index import change, vacuum
from rayhier.index.assign import Assigner
from rayhier.index.compact import compact_here
from rayhier.index.maintain import maintain
from rayhier.index.stats import Due, largest
from rayhier.index.verify import verify
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import open_router
from rayhier.search.request.hits import answers
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec import InputError
from rayhier.storage import files, leaf_map
from rayhier.storage.leaf_map import LeafMap

from ..meanwhile import meanwhile
from .changes import FACTOR, batch, content
from .conftest import SPEC, M, N, documents, unit


def router_of(there, made):
    folder = there.router()
    return made.assign.router if folder is None else open_router(folder)


def maintained(made):
    newest = LeafMap.open(made.root)
    return maintain(made.root, router_of(newest, made), SPEC)


def due(there, made):
    return Due.of(there.manifest, SPEC)


def ranked(there, vectors):
    leaves = np.tile(np.arange(len(there.manifest.counts)), (len(vectors), 1))
    listed = answers(LeafScan.mapped(there).scan(vectors, leaves, 20), leaves, N, 20)
    return [[(hit.id, round(hit.score, 5)) for hit in answer.hits] for answer in listed]


def test_leaves_become_as_large_as_those_made_anew_and_documents_are_found_as_before(made):
    """200 documents in 12 leaves, where an index made anew would have 50."""
    before, query_QM = LeafMap.open(made.root), unit(7, 10, M)
    wanted = ranked(before, query_QM)
    assert due(before, made).dear > 3
    after = maintained(made)
    assert (after.manifest.version, after.manifest.change, after.manifest.documents) == (2, "maintain", N)
    assert due(after, made).dear < 1.2
    assert max(after.manifest.counts) <= largest(due(after, made).mean) + 2
    columns = ("title", "text", "vector")
    old, new = (
        {name: [row[c] for c in columns] for (name, rank), row in content(there).items() if rank == 0}
        for there in (before, after)
    )
    assert old == new
    assert ranked(after, query_QM) == ranked(LeafMap.open(made.root, 1), query_QM) == wanted
    assert verify(made.root) == [1, 2]
    assert maintained(made) is None, "once is enough"


def test_moved_documents_lie_where_the_versions_router_puts_them(made):
    after = maintained(made)
    router = router_of(after, made)
    rows = content(after)
    moved = sorted({row["doc_id"] for row in after.read(after.manifest.shards[-1]).to_pylist()})
    place = [made.ids.index(name) for name in moved]
    wanted = Assigner(router, SPEC)(documents(moved), Encoded(made.vectors[place]))
    assert len(moved) > N / 2
    for row in wanted.to_pylist():
        assert rows[row["doc_id"], row["rank"]]["leaves"] == row["leaves"]
    sizes = np.bincount([row["leaf"] for row in rows.values()], minlength=router.n_leaves)
    assert sizes.tolist() == after.manifest.counts
    np.testing.assert_allclose(router.log_size_L, np.log(sizes + 0.5), rtol=1e-5)


def test_leaves_that_shrank_are_given_up(made):
    after = maintained(made)
    leaves = len(after.manifest.counts)
    kept = {leaf for leaf in range(leaves) if leaf % 3 == 0}
    rows = content(after)
    gone = [name for (name, rank), row in rows.items() if rank == 0 and not kept & set(row["leaves"])]
    change.delete(made.root, gone)
    again = maintained(made)
    assert again is not None
    router = router_of(again, made)
    assert 0 < int(router.in_use.sum()) < leaves
    assert not any(np.array(again.manifest.counts)[~router.in_use])
    assert again.manifest.documents == N - len(gone)
    assert {name for name, _ in content(again)} == set(made.ids) - set(gone)
    verify(made.root)


def test_a_change_meanwhile_is_not_lost(made, monkeypatch):
    module = sys.modules["rayhier.index.maintain"]
    add = partial(change.add, made.root, made.assign, batch(["late"]), FACTOR)
    meanwhile(monkeypatch, module, "write_ids", add)
    with pytest.raises(InputError, match=r"version 2 \(add\).*Nothing was changed"):
        maintained(made)
    assert LeafMap.open(made.root).manifest.version == 2


def test_an_addition_placed_before_maintenance_is_refused(made):
    """Its leaves are those of a router that no longer routes."""

    def batches():
        yield batch(["a"])[0]
        maintained(made)

    with pytest.raises(InputError, match="by version 2, after version 1 was read"):
        change.add(made.root, made.assign, batches(), FACTOR)
    assert LeafMap.open(made.root).manifest.change == "maintain"


def test_a_rollback_returns_to_its_router_which_a_vacuum_keeps(made):
    maintained(made)
    change.rollback(made.root, 1)
    newest = LeafMap.open(made.root)
    assert newest.router() is None
    assert len(newest.manifest.counts) == 12
    newest = change.rollback(made.root, 2)
    assert router_of(newest, made).n_leaves == len(newest.manifest.counts) > 12
    change.add(made.root, Assigner(router_of(newest, made), SPEC), batch(["a"]), FACTOR)
    vacuum.vacuum(made.root, hours=0)
    assert len([name for name in files.below(made.root) if name.startswith("routers/")]) == 2
    compact_here(SPEC, made.root)
    assert content(LeafMap.open(made.root))["a", 0]["text"] == "text a"
    verify(made.root)


def test_a_damaged_router_is_named(made):
    after = maintained(made)
    path = made.root / next(file.name for file in after.manifest.revision.files if file.name.endswith("safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=r"router\.safetensors: SHA-256"):
        LeafMap.open(made.root).router()


def test_other_routers_are_refused(made):
    with pytest.raises(InputError, match=r"router\.type: got .* whose leaves do not split; allowed: learned_ivf"):
        maintain(made.root, EhiRouter(M, 12, 1, residual=False), SPEC)


def test_the_router_of_another_version_is_refused(made):
    before = LeafMap.open(made.root).manifest
    maintained(made)
    with pytest.raises(InputError, match="by version 2, after version 1 was read"):
        maintain(made.root, made.assign.router, SPEC, of=before)
    assert leaf_map.versions(made.root) == [1, 2]

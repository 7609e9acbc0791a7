"""Leaves that are split and given up while an index is served: nothing is lost, whichever router placed a document."""

import pytest

from rayhier.index.maintain import maintain
from rayhier.index.verify import verify
from rayhier.search.routing.routes import Model
from rayhier.storage import current
from rayhier.storage.leaf_map import LeafMap

from .conftest import TEXTS, L, make_published
from .server import OPEN, doc, root_of

MORE = {f"n{n}": f"{TEXTS[n % 40]} {n}" for n in range(400)}


@pytest.fixture
def work(tmp_path, tiny_model):
    return make_published(tmp_path / "work", tiny_model, router_type="learned_ivf")


def write_many(server):
    server.put(*(doc(*item) for item in MORE.items()))


def newest(work):
    return LeafMap.open(root_of(work)).manifest


def grow(server, work):
    """Write so many documents that the fold splits leaves."""
    write_many(server)
    server.fold()
    assert newest(work).change == "maintain"
    assert len(newest(work).counts) > L


def fold_alone(server):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rayhier.serve.backend.publishing.maintain", lambda *_: None)
        server.fold()


def lacking(server, names):
    """Names of documents that are not listed, or not in the first leaf that their text leads to."""
    listed = set(server.all_ids())
    return [name for name, text in names.items() if name not in listed & set(server.ids(text, 100, beam=1))]


def test_documents_written_after_leaves_were_split_are_found(server, work):
    grow(server, work)
    server.put(doc("new"))
    assert not lacking(server, {"new": OPEN})
    server.fold()
    assert not lacking(server, {"new": OPEN})
    assert verify(root_of(work))


def test_documents_written_while_a_rollback_takes_leaves_away_are_found(server, work, monkeypatch):
    grow(server, work)
    writer, move = server.writer, server.writer._follower.move
    late = {f"late{n}": MORE[f"n{n}"] for n in range(40)}

    async def moved(number):
        for item in late.items():
            await writer.put([doc(*item)])
        return await move(number)

    monkeypatch.setattr(writer._follower, "move", moved)
    server.roll_back(1)
    monkeypatch.undo()
    assert not lacking(server, late)
    fold_alone(server)
    assert (newest(work).change, len(newest(work).counts)) == ("fold", L)
    assert not lacking(server, late)
    assert verify(root_of(work))


def test_a_fold_places_documents_by_leaves_that_nobody_serves_yet(server, work):
    write_many(server)
    fold_alone(server)
    server.put(doc("new"))
    now = current.read(work)
    assert maintain(root_of(work), Model.of_workdir(work, now).router, now.spec)
    server.fold()
    assert not lacking(server, {"new": OPEN, "n7": MORE["n7"]})

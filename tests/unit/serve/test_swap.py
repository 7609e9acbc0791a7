"""A newly trained model takes the place of the one that is served; nothing fails, is mixed or is lost."""

import asyncio
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest

from rayhier.index import change, vacuum
from rayhier.search.routing.routes import Model
from rayhier.search.snapshot import Snapshot
from rayhier.serve import embedded
from rayhier.serve.backend.changes import MovedError
from rayhier.serve.backend.writer import Writers
from rayhier.spec import InputError
from rayhier.storage import current, leaf_map, pins
from rayhier.storage.artifact import Artifact
from rayhier.storage.change_log import ChangeLog
from rayhier.storage.writer_lease import LeaseRecord

from ...draws import unit
from .conftest import INDEX, MODEL, OTHER_INDEX, OTHER_MODEL, TEXTS, N, make_published
from .server import OPEN, READ, Reads, Server, doc

M = 32
SHORT = {"limits": {"seconds": 1.0}, "shard_seconds": 0.5, "reranker_seconds": 0.5}


@pytest.fixture
def train_again(work, tiny_model):
    """Publish another model, a rotation of the first one's vectors and more, and its index, and make them current."""

    def trained(**more):
        head = np.linalg.qr(unit(3, M, M))[0] + 0.5 * unit(4, M, M) - np.eye(M)
        named = {"model": OTHER_MODEL, "index": OTHER_INDEX, "before": INDEX}
        make_published(work, tiny_model, head=head.astype(np.float32), **named | more)
        return current.read(work)

    return trained


def look(server):
    server.client.portal.call(server.embedded.look)


def replayed(work, nows, text, answer, k=10):
    """Ids that offline search gives for a text, of what an answer says that it saw."""
    searcher = Snapshot.of_version(work, nows[answer["model"]], answer["version"], log=answer["log"])
    (found,) = searcher.search([text], k)
    return [hit.id for hit in found.hits]


def ids(answer):
    return [result["id"] for result in answer["results"]]


def drained(server):
    server.client.portal.call(asyncio.wait_for, server.embedded._draining, None)


def root_of(work, index):
    return Artifact.open(work / "index" / index).root


@pytest.mark.parametrize("kind", [Server, Reads], ids=["writes", "reads"])
def test_another_model_takes_the_place_of_the_one_that_is_served(kind, open_server, work, train_again):
    nows = {MODEL: current.read(work)}
    server = open_server(kind, **SHORT)
    before = server.search(TEXTS[3], 10)
    look(server)
    nows[OTHER_MODEL] = train_again()
    assert server.index()["model"] == MODEL
    old, new = (root_of(work, name) for name in (INDEX, OTHER_INDEX))
    look(server)
    assert pins.held(old)
    shown, after = server.index(), server.search(TEXTS[3], 10)
    assert (shown["model"], shown["index"], shown["refused"]) == (OTHER_MODEL, OTHER_INDEX, None)
    assert (before["model"], after["model"]) == (MODEL, OTHER_MODEL)
    for answer in (before, after):
        assert ids(answer) == replayed(work, nows, TEXTS[3], answer)
    nodes = server.client.get("/v1/nodes", headers=READ).json()
    assert sum(node["size"] for node in nodes["nodes"]) == 2 * N
    routed = server.client.post("/v1/route", json={"query": TEXTS[3], "beam": 3}, headers=READ).json()
    model = Model.of_workdir(work, nows[OTHER_MODEL])
    assert [leaf["leaf"] for leaf in routed["leaves"]] == model.route(model.encode([TEXTS[3]]), 3)[0].tolist()
    if kind is Server:
        drained(server)
        assert (bool(pins.held(old)), bool(pins.held(new))) == (False, True)


@pytest.mark.parametrize("restarts", [False, True], ids=["while it runs", "at its start"])
def test_what_the_index_before_was_told_is_taken_over_with_its_keys(open_server, train_again, restarts):
    key, again = {"Idempotency-Key": "k-1"}, doc("d7", f"{OPEN} again")
    server = open_server()
    first = server.put(doc("a"), again, **key)
    server.delete("d9")
    if restarts:
        server.close()
    train_again()
    if restarts:
        server = open_server()
    else:
        look(server)
    assert (server.index()["model"], server.index()["documents"]) == (OTHER_MODEL, N)
    assert server.ids(OPEN, 2) == ["a", "d7"]
    assert set(server.all_ids()) == {*(f"d{n}" for n in range(N) if n != 9), "a"}
    assert server.put(doc("a"), again, **key)["log"] == first["log"]
    assert server.put(doc("b"), status=422, **key)["error"]["code"] == "key_reused"
    assert server.put(doc("b"))["log"] == 3


@pytest.mark.parametrize(
    ("kind", "damaged", "said"),
    [(Server, "router.safetensors", "router/router.safetensors: SHA-256"), (Reads, "data/0.parquet", "SHA-256")],
)
def test_what_cannot_be_served_is_said_and_the_old_goes_on(
    kind, damaged, said, open_server, work, train_again, tmp_path, monkeypatch
):
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    server, now = open_server(kind), train_again()
    (path,) = [path for path in work.rglob(damaged) if OTHER_MODEL in str(path) or OTHER_INDEX in str(path)]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    look(server)
    shown = server.index()
    assert (shown["model"], said in shown["refused"]) == (MODEL, True), shown["refused"]
    assert server.search(TEXTS[0])["model"] == MODEL
    path.write_bytes(whole)
    current.write(work, now.model_copy(update={"seeds": {"1": {}}}))
    look(server)
    assert (server.index()["model"], server.index()["refused"]) == (OTHER_MODEL, None)


def test_a_fold_of_the_index_before_does_not_bring_it_back(open_server, work, train_again, monkeypatch):
    """The other index takes its place once the fold has opened its version, and before it shows it."""
    server = open_server(**SHORT)
    server.put(doc("a"))
    train_again()
    follower, run = server.writer._follower, server.writer._follower._in

    async def late(opening, *arguments):
        done = await run(opening, *arguments)
        if opening == follower._opened:
            monkeypatch.undo()
            await server.embedded.look()
        return done

    monkeypatch.setattr(follower, "_in", late)
    server.fold()
    assert server.index()["model"] == OTHER_MODEL
    drained(server)
    answer = server.search(OPEN)
    assert (answer["model"], answer["partial"], ids(answer)[0]) == (OTHER_MODEL, False, "a")
    assert not pins.held(root_of(work, INDEX))


def test_a_rollback_that_waits_for_a_swap_does_not_roll_the_new_index_back(open_server, work, train_again, monkeypatch):
    server = open_server()
    publisher = server.writer.publisher
    check = publisher._check_whole

    async def swapped(number):
        await check(number)
        await server.embedded.look()

    monkeypatch.setattr(publisher, "_check_whole", swapped)
    train_again()
    assert server.roll_back(1, 409)["error"]["code"] == "not_restored"
    assert [leaf_map.versions(root_of(work, index)) for index in (INDEX, OTHER_INDEX)] == [[1], [1]]


def test_other_settings_of_searches_are_served_too(open_server, work):
    server, now = open_server(shard_groups=2), current.read(work)
    server.put(doc("b"))
    before, hybrid = server.search(OPEN, None), now.spec.search.hybrid.model_copy(update={"weight": 1.0})
    search = now.spec.search.model_copy(update={"k": 3, "hybrid": hybrid})
    other = now.model_copy(update={"spec": now.spec.model_copy(update={"search": search})})
    current.write(work, other)
    look(server)
    after = server.search(OPEN, None)
    assert (len(before["results"]), len(after["results"]), server.index()["k"]) == (7, 3, 3)
    assert (after["model"], after["version"], after["log"]) == (before["model"], before["version"], before["log"])
    assert ids(after) == replayed(work, {MODEL: other}, OPEN, after, 3)
    server.fold()
    assert (server.index()["k"], server.ids(OPEN, 9)[0]) == (3, "b")


def test_a_server_that_does_not_write_moves_to_versions_that_others_publish(open_server, work):
    server, root = open_server(Reads), root_of(work, INDEX)
    first = server.search(TEXTS[3], 10)
    change.delete(root, [ids(first)[0]])
    look(server)
    second = server.search(TEXTS[3], 10)
    assert (second["version"], server.index()["version"], server.index()["documents"]) == (2, 2, N - 1)
    assert ids(first)[0] not in ids(second)
    (root / "manifests" / "v000003.json").write_bytes(b"{}")
    look(server)
    assert "v000003.json" in server.index()["refused"]
    assert server.search(TEXTS[3], 10)["version"] == 2
    change.rollback(root, 1)
    look(server)
    assert (server.index()["version"], server.index()["refused"]) == (4, None)
    assert ids(server.search(TEXTS[3], 10)) == ids(first)


def test_a_start_that_would_leave_changes_behind_is_refused(open_server, work, train_again):
    server = open_server()
    server.put(doc("a"))
    server.close()
    train_again()
    damaged = root_of(work, INDEX) / "log" / "000000000001.change"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + b"?")
    with pytest.raises(InputError, match=r"000000000001.change: damaged.*rayhier run SPEC"):
        open_server()
    damaged.write_bytes(whole)
    assert open_server().ids(OPEN, 1) == ["a"]


def test_a_rollback_of_the_index_before_is_not_undone(open_server, work, train_again):
    server = open_server()
    server.put(doc("a"))
    train_again()
    assert server.roll_back(1)["version"] == 2
    look(server)
    assert server.index()["model"] == MODEL
    assert "a rollback made version 2" in server.index()["refused"]
    assert "a" not in server.all_ids()


async def test_a_vector_of_the_index_before_is_not_stored_in_another():
    async def moved(*_, **__):
        writers.now = then
        raise MovedError

    document, then = {"id": "a", "text": "x"}, Mock(put=AsyncMock())
    writers = Writers(Mock(put=moved))
    await writers.put([document | {"vector": [1.0]}])
    assert then.put.await_args.args[0] == [document]


def test_what_an_index_has_yet_to_take_over_stays_in_the_log(open_server, train_again, monkeypatch):
    """Other fields cannot be served while a server runs. Its next start takes the documents over without them."""
    monkeypatch.setattr(vacuum, "KEPT", 0)
    server = open_server(writes={"keep_versions": 1})
    server.put(doc("a", fields={"year": 1999}))
    train_again(fields={"lang": "string"})
    look(server)
    assert "corpus.fields: got {'lang': 'string'}; allowed: {'year': " in server.index()["refused"]
    server.put(doc("b"))
    server.fold()
    server.client.portal.call(server.writer.publisher._tidy)
    assert [made.number for made in ChangeLog(server.writer.root).there()] == [1, 2]
    server.close()
    assert open_server().document("a")["fields"] == {"lang": None}


def test_a_server_does_not_start_on_an_index_whose_place_another_takes_meanwhile(
    open_server, work, train_again, monkeypatch
):
    server, before, plain = open_server(), current.read(work), embedded.check_index
    server.put(doc("a"))
    train_again()

    def check_index(args, now=None):
        checked = plain(args, now or before)
        if now is None:
            look(server)  # which takes the other index, and gives the lease on this one back
        return checked

    monkeypatch.setattr(embedded, "check_index", check_index)
    with pytest.raises(InputError, match=r"current.json names another index.*Start again"):
        open_server()
    assert server.index()["index"] == OTHER_INDEX


def test_a_server_that_lost_its_lease_does_not_take_a_new_index(open_server, train_again, monkeypatch):
    standby = open_server()
    standby.put(doc("a"))
    with monkeypatch.context() as patch:  # as if it had slept for long
        patch.setattr(LeaseRecord, "holds", property(lambda _: False))
        holder = open_server()
    holder.put(doc("b"))
    standby.writer.lease.lose()
    train_again()
    with pytest.raises(InputError, match="a server writes to this index"):
        open_server()
    look(standby)
    assert "a server writes to this index" in standby.index()["refused"]
    look(holder)
    holder.put(doc("c"))
    assert standby.put(doc("lost"), status=503)["error"]["code"] == "not_the_writer"
    holder.close()
    look(standby)  # it tries again, once the other has ended
    assert standby.put(doc("d"))["model"] == OTHER_MODEL
    assert {"a", "b", "c", "d"} <= set(standby.all_ids())

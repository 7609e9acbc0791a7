"""Changes over HTTP: durable before they are answered, seen at once, folded into leaf files, never lost or doubled."""

import asyncio
import json
import math
import os
import threading
import time
from functools import partial
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest

from rayhier.index import change
from rayhier.index.__main__ import main
from rayhier.index.vacuum import vacuum
from rayhier.serve.backend.follower import Follower
from rayhier.serve.backend.shards import LocalShards
from rayhier.serve.errors import LostError
from rayhier.serve.http.bodies import pack
from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.change_log import LOG, ChangeLog
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.writer_lease import LeaseRecord, leased

from .conftest import N
from .server import OPEN, READ, Reads, doc, fold_until, root_of


def test_a_document_is_found_as_soon_as_it_is_answered(server):
    server.put(doc("new", fields={"year": 1850}))
    assert server.search(OPEN)["results"][0]["id"] == "new"
    assert (server.document("new")["text"], server.document("new")["fields"]) == (OPEN, {"year": 1850})
    assert server.ids("oak", 50, filter={"year": {"lt": 1900}}) == ["new"]
    server.put(doc("new", "another text"), doc("d7", OPEN))
    assert server.ids(OPEN)[0] == "d7"
    server.delete("d7", "new")
    assert {"d7", "new"}.isdisjoint(server.ids(OPEN, 50))


def test_an_index_whose_documents_all_went_answers_with_nothing(open_server):
    server = open_server()
    server.delete(*server.all_ids())
    modes = ("dense", "bm25", "hybrid")
    for _ in range(2):
        for where in (None, {"year": {"lt": 1900}}):
            assert [server.ids("oak", mode=mode, filter=where) for mode in modes] == [[], [], []]
        server.fold()
    assert server.index()["documents"] == 0
    server.put(doc("new"))
    assert [server.ids(OPEN, mode=mode) for mode in modes] == [["new"]] * 3


def test_a_request_that_began_before_a_fold_ends_as_it_began(open_server):
    server = open_server()
    server.put(doc("a"))
    engine = server.embedded._served.engine
    view = engine.view
    server.fold()
    server.put(doc("b"))
    engine.view, now = view, engine.view
    old = server.search(OPEN, 50)
    engine.view = now
    assert (old["version"], old["log"]) == (1, 1)
    assert {"a", "b"} & {result["id"] for result in old["results"]} == {"a"}


REFUSED = {
    "an unknown key": ([{"id": "a", "text": "x", "lang": "en"}], "documents.0: got key 'lang'"),
    "a field of another type": ([doc("a", fields={"year": "old"})], "documents[0]: field of the wrong type"),
    "a vector of another length": ([doc("a", vector=[2.0] * 32)], "documents[0].vector: got length 11.31"),
    "no base64": ([doc("a", vector="AACAPwA=")], "documents.0.vector: got a text of 8 characters"),
    "two numbers": ([doc("a", vector=pack([1.0, 0.0]))], "documents[0].vector: got 2 numbers"),
    "base64 of NaN": ([doc("a", vector=pack([math.nan] * 32))], "vectors: got 1 of 1 with NaN, infinity"),
    "a long id": ([doc("x" * 10_000)], "documents[0]: id too long"),
    "an id twice": ([doc("a"), doc("b"), doc("a")], "documents[2].id: got 'a'"),
    "too many": ([doc(f"a{n}") for n in range(4)], "documents: got 4; allowed: 1 to 3, writes.max_documents"),
}


def test_a_body_that_is_refused_changes_nothing(open_server):
    server = open_server(writes={"max_documents": 3})
    for name, (documents, said) in REFUSED.items():
        assert server.put(*documents, status=422)["error"]["message"].startswith(said), name
        if len(documents) == 1:
            server.put(doc("good"), *documents, status=422)
    assert server.delete(*(f"d{n}" for n in range(4)), status=422)["error"]["message"].startswith("ids: got 4")
    server.put(doc("a"), status=422, **{"Idempotency-Key": "x" * 300})
    server.put(doc("a", "x" * 5_000_000), status=413)
    assert (server.index()["log"], server.document("good")) == (0, None)


def test_a_vector_may_be_base64_of_its_numbers(server):
    vectors = np.eye(32, dtype=np.float32)[5:7].tolist()
    server.put(doc("v", vector=pack(vectors[0])), doc("w", vector=vectors[1]))
    for name, vector in zip("vw", vectors, strict=True):
        (found,) = server.asked("POST", "/v1/search", {"vector": vector, "k": 1}, READ)["results"]
        assert (found["id"], found["score"]) == (name, pytest.approx(1.0))


def test_a_server_that_only_reads_serves_the_tail(open_server):
    open_server().put(doc("a"))
    assert open_server(Reads).ids(OPEN, 1) == ["a"]


def test_one_writer_at_a_time(open_server, work):
    server = open_server()
    with pytest.raises(InputError, match=rf"a server writes to this index \(process {os.getpid()} of"):
        open_server()
    for write in (partial(change.delete, root_of(work), ["d1"]), partial(change.rollback, root_of(work), 1)):
        with pytest.raises(InputError, match="a server writes to this index"):
            write()
    server.put(doc("a"))
    server.close()
    after = change.delete(root_of(work), ["d1", "a"]).manifest
    assert [after.version, after.documents, after.log] == [3, N - 1, 1]  # folded before
    assert change.rollback(root_of(work), 1).manifest.log == 1
    again = open_server()
    assert (again.document("a"), again.index()["documents"]) == (None, N)
    assert again.put(doc("b"))["log"] == 2


def at_once(server, *changes):
    """Outcomes of changes that wait, in this order, and are then made together."""
    writer = server.writer

    async def gathered():
        async with writer._follower.lock:
            tasks = []
            for kind, *given in changes:
                tasks.append(asyncio.create_task(getattr(writer, kind)(*given)))
                while len(writer._waiting) < len(tasks):
                    await asyncio.sleep(0.001)
        return await asyncio.gather(*tasks, return_exceptions=True)

    return server.client.portal.call(gathered)


def test_changes_that_wait_are_made_together_each_as_if_alone(server, work):
    _, first, again, gone, missing, keyed, same, reused, deleted, last = at_once(
        server,
        ("delete", ["d0"]),
        ("put", [doc("a")]),
        ("put", [doc("a", "closed quagga")]),
        ("delete", ["a"]),
        ("delete", ["a"]),
        ("put", [doc("b")], "key", "body"),
        ("put", [doc("b")], "key", "body"),
        ("put", [doc("c")], "key", "another"),
        ("delete", ["d1"]),
        ("put", [doc("a")]),
    )
    assert [each.seen.log for each in (first, again, gone, keyed, deleted, last)] == [2, 3, 4, 5, 6, 7]
    assert [each.replaced for each in (first, again, last)] == [0, 1, 0]
    assert missing.code == "no_document"
    assert same == keyed
    assert reused.code == "key_reused"
    assert {"a", "b", "c", "d0", "d1"} & set(server.all_ids()) == {"a", "b"}
    assert [made.number for made in ChangeLog(root_of(work)).after(0)] == [1, 2, 3, 4, 5, 6, 7]
    server.fold()
    assert server.index()["documents"] == N


def test_a_damaged_change_is_named_and_what_came_before_is_served(server, open_server, work):
    for name in "abc":
        server.put(doc(name))
    server.close()
    path = root_of(work) / LOG / "000000000002.change"
    data = path.read_bytes()
    path.write_bytes(data[:-9])
    again = open_server()
    assert (again.index()["log"], {"a", "b", "c"} & set(again.ids(OPEN, 50))) == (1, {"a"})
    refused = again.put(doc("d"), status=503)["error"]
    assert (refused["code"], "000000000002.change: damaged" in refused["message"]) == ("log_damaged", True)
    again.close()
    path.write_bytes(data)
    assert open_server().put(doc("d"))["log"] == 4


def test_a_full_tail_refuses_further_changes(open_server):
    server = open_server(writes={"max_tail_documents": 2, "fold_documents": 100})
    server.put(doc("a"), doc("b"))
    assert server.put(doc("c"), status=503)["error"]["code"] == "overloaded"
    server.fold()
    server.put(doc("c"))


def test_the_shell_sees_the_tail_and_folds_it(server, work, capsys):
    server.put(doc("a"), doc("d5", "changed"))
    server.delete("d1")
    assert main(["get", str(work), "a", "d5"]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == [OPEN, "changed"]
    assert main(["fold", str(work)]) == 2
    assert "a server writes to this index" in capsys.readouterr().err
    server.close()
    for said in (f"version 2 (fold): {N} documents (+0)", "version 2: the change log has no tail\n"):
        assert main(["fold", str(work)]) == 0
        assert capsys.readouterr().out.startswith(said)


def test_a_request_to_write_has_a_time_of_its_own(open_server, monkeypatch):
    """A late change may be there or not; here it is, once the server sees its object in the log."""
    server, answered = open_server(writes={"seconds": 1.0}), threading.Event()
    with monkeypatch.context() as patch:
        plain = ChangeLog.append
        patch.setattr(ChangeLog, "append", lambda *given: (plain(*given), answered.wait(60))[0])
        assert "writes.seconds" in server.put(doc("a"), status=504)["error"]["message"]
        answered.set()
    assert server.put(doc("b"))["log"] == 2
    assert {"a", "b"} <= set(server.ids(OPEN, 50))


def test_a_lost_group_refuses_changes(open_server, monkeypatch):
    async def lost(shards, work, seen):
        raise LostError(shards.name)

    server = open_server(shard_groups=3)
    with monkeypatch.context() as patch:
        patch.setattr(LocalShards, "read", lost)
        refused = server.put(doc("a"), status=503)["error"]
        assert (refused["code"], "Nothing was changed" in refused["message"]) == ("shards_lost", True)
    assert server.index()["log"] == 0


def test_a_writer_whose_lease_is_over_answers_no_change(open_server, work):
    """Another may have read the log before the change: what was appended is there, and is answered by that one."""
    server = open_server()
    told = server.put(doc("a"), **{"Idempotency-Key": "k-1"})
    server.writer.lease.holds = lambda: False
    assert server.put(doc("a"), status=503, **{"Idempotency-Key": "k-1"})["error"]["code"] == "not_the_writer"
    server.writer.lease.holds = iter([True, True, False]).__next__
    assert server.put(doc("b"), status=503, **{"Idempotency-Key": "k-2"})["error"]["code"] == "not_the_writer"
    server.close()
    again = open_server()
    assert again.put(doc("a"), **{"Idempotency-Key": "k-1"}) == told
    assert again.put(doc("b"), **{"Idempotency-Key": "k-2"})["log"] == 2


def test_a_lease_that_is_not_renewed_in_time_is_over(work, monkeypatch):
    with leased(root_of(work), 0.3) as may_write:
        assert may_write()
        with monkeypatch.context() as patch:
            patch.setattr(files, "rewrite", Mock(side_effect=OSError("read-only")))
            while may_write():
                time.sleep(0.01)
        while not may_write():
            time.sleep(0.01)


def test_a_version_whose_file_is_missing_is_not_published_again(open_server, work):
    server, root = open_server(), root_of(work)
    server.put(doc("a"))
    server.fold()
    assert server.roll_back(1)["version"] == 3
    folded = next(shard for shard in LeafMap.open(root, 2).manifest.shards if "folded" in shard.file.name)
    (root / folded.file.name).unlink()
    assert "is missing. Nothing was published" in server.roll_back(2, 409)["error"]["message"]
    assert server.roll_back(9, 404)["error"]["code"] == "no_version"
    server.put(doc("b"))
    server.fold()
    newest = LeafMap.open(root).manifest
    assert (newest.version, newest.change, newest.restored, newest.documents) == (4, "fold", None, N + 1)


def test_a_version_that_cannot_be_opened_is_not_published_again(server, monkeypatch):
    server.put(doc("a"))
    for error, status, code in (
        (InputError("v1: damaged"), 409, "not_restored"),
        (LostError("shards-0"), 503, "shards_lost"),
    ):
        monkeypatch.setattr(Follower, "open", AsyncMock(side_effect=error))
        refused = server.roll_back(1, status)["error"]
        assert (refused["code"], "Nothing was published" in refused["message"]) == (code, True)
    assert server.client.get("/v1/versions", headers=READ).json()["versions"][0]["version"] == 1
    assert "a" in server.ids(OPEN, 50)


def test_a_rollback_that_a_lost_group_does_not_serve_is_served_later(open_server, monkeypatch):
    async def lost(shards, number):
        if number == 2:
            raise LostError(shards.name)

    server = open_server(shard_groups=3)
    server.put(doc("a"))
    with monkeypatch.context() as patch:
        patch.setattr(LocalShards, "open", lost)
        assert server.roll_back(1, 503)["error"]["code"] == "shards_lost"
        assert (server.index()["version"], "a" in server.ids(OPEN, 50)) == (1, True)
    fold_until(server, lambda: server.index()["version"] == 2)
    assert "a" not in server.ids(OPEN, 50)


def go_on(server):
    server.client.portal.call(server.writer.publisher._go_on)


def test_two_servers_that_take_the_lease_from_each_other_lose_nothing(open_server, work, monkeypatch):
    monkeypatch.setattr(LeaseRecord, "holds", property(lambda _: False))  # as if the holder had slept for long
    limits = {"writes": {"max_tail_documents": 6}}
    first = open_server(**limits)
    first.put(doc("a"))
    second = open_server(**limits)
    for n in range(9):
        second.put(doc(f"b{n}"))
        second.fold()
    key = {"Idempotency-Key": "k-c"}
    assert first.put(doc("c"), status=503, **key)["error"]["code"] == "not_the_writer"
    assert first.writer.lease.lost
    with monkeypatch.context() as patch:  # it takes the lease again, but cannot read what the other wrote
        patch.setattr(ChangeLog, "after", Mock(side_effect=OSError("no route to storage")))
        with pytest.raises(OSError, match="no route"):
            go_on(first)
        assert first.put(doc("x"), status=503)["error"]["code"] == "not_the_writer"
    go_on(first)
    told = first.put(doc("c"), **key)
    assert second.put(doc("e"), status=503)["error"]["code"] == "not_the_writer"
    go_on(second)
    assert {"a", "c", *(f"b{n}" for n in range(9))} <= set(second.all_ids())
    assert [made.key for made in ChangeLog(root_of(work)).there()].count("k-c") == 1
    assert second.put(doc("c"), **key)["log"] == told["log"]


def test_a_rollback_sent_again_when_its_version_is_gone_is_not_made_again(server, work):
    told = server.roll_back(1, **{"Idempotency-Key": "r-1"})
    for name in "abc":
        server.put(doc(name))
        server.fold()
    vacuum(root_of(work), 1, 0)
    assert server.roll_back(1, **{"Idempotency-Key": "r-1"}) == told
    assert {"a", "b", "c"} <= set(server.all_ids())


def test_a_lease_that_cannot_be_read_is_over_in_time(work):
    root = root_of(work)
    path = root / LOG / "writer-000001.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("{")
    with pytest.raises(InputError, match="a server writes to this index"), leased(root):
        pass
    os.utime(path, (0, 0))
    with leased(root) as may_write:
        assert may_write()


def test_a_rollback_past_a_damaged_change_lets_writing_go_on_and_keys_stay_known(server, open_server, work):
    server.put(doc("a"))
    (root_of(work) / LOG / "000000000002.change").write_bytes(b"torn")
    assert server.put(doc("b"), status=503)["error"]["code"] == "log_damaged"
    assert server.roll_back(1)["log"] == 2
    key = {"Idempotency-Key": "k"}
    first = server.put(doc("b"), **key)
    assert {"a", "b"} & set(server.ids(OPEN, 50)) == {"b"}
    server.put(doc("b", "another text"))
    server.fold()
    server.close()
    again = open_server()
    assert again.put(doc("b"), **key)["log"] == first["log"]
    assert again.document("b")["text"] == "another text"

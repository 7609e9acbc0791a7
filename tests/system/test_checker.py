"""The checker of histories: each kind of violation in a history of a few lines, and histories that have none."""

import json

import pytest

from tests.system.history.checker import check

BEGIN = {"event": "begin", "time": 0.0, "model": "m", "documents": {"a": "oak first", "b": "elm second"}}


def line(kind, start, sent, answer=None, **more):
    """An operation that takes half a second; `answer` says what differs from model m, version 1."""
    status = more.pop("status", 0 if answer is None else 200)
    good = None if answer is None else {"model": "m", "version": 1, **answer}
    line.count += 1
    made = {"client": 0, "number": line.count, "kind": kind, "start": start, "end": start + 0.5, "sent": sent}
    return made | {"key": f"key {line.count}", "status": status, "answer": good, "error": None} | more


line.count = 0


def put(start, name, text, log=None, replaced=0, **more):
    answer = None if log is None else {"log": log, "count": 1, "replaced": replaced, **more.pop("told", {})}
    return line("put", start, {"documents": [[name, text]]}, answer, **more)


def delete(start, name, log=None, **more):
    answer = None if log is None else {"log": log, "count": 1, "replaced": 0}
    return line("delete", start, {"ids": [name]}, answer, **more)


def get(start, name, text=None, log=None, **more):
    if text is None:
        return line("get", start, {"id": name}, status=404, **more)
    answer = {"log": log, "documents": [[name, text]], **more.pop("told", {})}
    return line("get", start, {"id": name, **more.pop("sent", {})}, answer, **more)


def page(start, documents, log, after="", limit=10, follows=None):
    answer = {"log": log, "documents": [list(row) for row in documents.items()], "next": follows}
    return line("list", start, {"after": after, "limit": limit}, answer)


def search(start, query, results, log, mode="bm25", k=10, told=None, **sent):
    rows = [[name, text, 1.0 - 0.1 * place] for place, (name, text) in enumerate(results)]
    answer = {"log": log, "results": rows, "partial": False, **(told or {})}
    return line("search", start, {"query": query, "mode": mode, "k": k, **sent}, answer)


def index(start, count, log):
    return line("index", start, {}, {"log": log, "count": count})


def event(name, time, **more):
    return {"event": name, "time": time, **more}


def violations(*records):
    return check(json.dumps(record) for record in (BEGIN, *records)).violations


OTHER = {"model": "n"}
KILLED = (event("killed", 2.6), event("started", 2.9))
GOOD = {
    "changes and reads": [
        put(1, "c", "oak third", 1),
        put(2, "a", "elm newer", 2, replaced=1),
        delete(3, "b", 3),
        delete(3.1, "b", status=404),
        get(4, "c", "oak third", 3),
        get(4, "b"),
        page(5, {"a": "elm newer", "c": "oak third"}, 3),
        page(5, {"a": "elm newer"}, 3, limit=1, follows="a"),
        search(6, "newer", [("a", "elm newer")], 3),
        search(6, "oak elm", [("c", "oak third"), ("a", "elm newer")], 3),
        search(6, "second", [], 3),
        search(6, "first", [], 3),
        search(6, "fern", [("c", "oak third"), ("a", "elm newer")], 3, mode="dense", beam=9),
        index(7, 2, 3),
    ],
    "a key sent twice": [put(1, "c", "x", 1, key="k"), put(2, "d", "y", 2), put(3, "c", "x", 1, key="k")],
    "an answer is lost, and sent again after the kill": [
        put(2, "c", "lost", key="k"),
        *KILLED,
        get(3, "c", "lost", 1),
        put(4, "c", "lost", 1, key="k"),
    ],
}
if_one = [put(1, "c", "x", 1)]
BAD = {
    "a change is lost": (["get"], [*if_one, get(2, "c")]),
    "a read does not see a change": (["stale"], [*if_one, get(2, "a", "oak first", 0)]),
    "a 404 for what is there": (["put or delete"], [delete(1, "a", status=404)]),
    "a key is forgotten": (["doubled"], [delete(1, "a", 1, key="k"), delete(2, "a", key="k", status=404)]),
    "a page in another order": (["list"], [page(1, {"b": "elm second", "a": "oak first"}, 0)]),
    "a result without the word": (["words"], [search(1, "first", [("a", "oak first"), ("b", "elm second")], 0)]),
    "a defect": (["status"], [get(1, "a") | {"status": 500}]),
    "two changes of one number": (["one number"], [put(1, "c", "x", 1), put(1, "d", "y", 1)]),
    "a smaller number later": (["order"], [put(1, "c", "x", 2), put(2, "d", "y", 1)]),
    "a key with two bodies": (["one body"], [put(1, "c", "x", 1, key="k"), put(2, "d", "y", 2, key="k")]),
    "a number that no change has": (["no change"], [put(1, "c", "x", 2)]),
    "half of a lost change": (
        ["list"],
        [
            line("put", 2, {"documents": [["c", "one"], ["d", "two"]]}, key="k"),
            *KILLED,
            page(3, {"a": "oak first", "b": "elm second", "c": "one"}, 1),
            line("put", 4, {"documents": [["c", "one"], ["d", "two"]]}, {"log": 1, "count": 2, "replaced": 0}, key="k"),
        ],
    ),
    "a page lacks a document": (["list"], [page(1, {"b": "elm second"}, 0)]),
    "a word that is not found": (["words"], [search(1, "first", [], 0)]),
    "a result twice": (["search"], [search(1, "oak", [("a", "oak first")] * 2, 0)]),
    "a wrong count": (["index"], [*if_one, index(2, 2, 1)]),
    "a model after the one that took its place": (
        ["model"],
        [
            event("swap", 1, model="n"),
            get(2, "a", "oak first", 0, told=OTHER),
            get(3, "a", "oak first", 0),
            get(4, "a", "oak first", 0, told=OTHER),
        ],
    ),
    "scores of two models in one answer": (
        ["mixed"],
        [
            search(1, "fern", [("a", "oak first"), ("b", "elm second")], 0, mode="dense"),
            *if_one,
            search(2, "fern", [("a", "oak first"), ("c", "x"), ("b", "elm second")], 1, mode="dense"),
        ],
    ),
    "two answers to one question": (
        ["repeated"],
        [
            search(1, "fern", [("a", "oak first"), ("b", "elm second")], 0, mode="hybrid"),
            search(2, "fern", [("b", "elm second"), ("a", "oak first")], 0, mode="hybrid"),
        ],
    ),
}


@pytest.mark.parametrize("records", GOOD.values(), ids=GOOD)
def test_a_right_history_has_no_violation(records):
    assert [str(violation) for violation in violations(*records)] == []


@pytest.mark.parametrize(("rules", "records"), BAD.values(), ids=BAD)
def test_a_violation_is_named(rules, records):
    assert sorted({violation.rule for violation in violations(*records)}) == rules

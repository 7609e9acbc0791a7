"""Writers that race, and any history of changes: what readers see is what a dictionary would hold."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rayhier.index import change, find, pack
from rayhier.index.assign import Assigner
from rayhier.index.maintain import maintain
from rayhier.index.verify import verify
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import open_router
from rayhier.search.request.hits import answers
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec import InputError
from rayhier.storage import leaf_map
from rayhier.storage.change_log import Change, ChangeLog
from rayhier.storage.leaf_map import LeafMap

from .changes import FACTOR, batch, compacted, content, vectors_of
from .conftest import SPEC, L, M, documents, unit


def test_writers_at_once_all_land_but_of_those_of_one_id_one_does(made):
    """Three writers add their own documents, three delete others, four add the same one."""
    go = threading.Barrier(10)

    def write(n):
        go.wait()
        if n in (0, 1, 2):
            return change.delete(made.root, [f"d{n:03d}"])
        with contextlib.suppress(InputError):
            return change.add(made.root, made.assign, batch(["same" if n > 5 else f"w{n}"], n), FACTOR)

    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(write, range(10)))
    assert sorted(one.manifest.version for one in done if one) == [2, 3, 4, 5, 6, 7, 8]
    wanted = set(made.ids) - {"d000", "d001", "d002"} | {"w3", "w4", "w5", "same"}
    assert {name for name, _ in content(LeafMap.open(made.root))} == wanted
    verify(made.root)


WRITES = st.tuples(
    st.sampled_from(["add", "upsert", "delete", "rollback", "put", "drop"]),
    st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True),
)
UPKEEP = st.sampled_from(["fold", "pack", "compact", "maintain"])
STEPS = st.lists(
    st.one_of(WRITES, st.tuples(UPKEEP, st.lists(st.one_of(WRITES, st.tuples(UPKEEP, st.just([]))), max_size=3))),
    max_size=8,
)


class History:
    """An index, and the dictionary of vectors that it should hold."""

    def __init__(self, root, assign, write_map):
        self.root, self.built, self.log, self.fresh = root, assign, ChangeLog(root), 100
        ids, first = [f"k{n}" for n in range(10)], unit(0, 10, M)
        write_map(root, assign(documents(ids), Encoded(first)), L, 2, leaves_per_document=2)
        self.state = {name: tuple(vector) for name, vector in zip(ids, first.tolist(), strict=True)}
        self.versions = {1: dict(self.state)}
        for step in (("add", [21, 22]), ("add", [23, 24]), ("delete", [1, 21])):  # small files, and removed ids
            self.do(*step)

    @property
    def assign(self):
        folder = LeafMap.open(self.root).router()
        return self.built if folder is None else Assigner(open_router(folder), SPEC)

    def do(self, what, given):
        if what in ("fold", "pack", "compact", "maintain"):
            self.keep_up(what, given)
        else:
            self.write(what, [f"k{n}" for n in given])
        there = LeafMap.open(self.root)
        held = vectors_of(there)
        self.versions[there.manifest.version] = dict(held)
        assert there.manifest.documents == len(held)
        for made in self.log.after(there.manifest.log):
            held = {name: vector for name, vector in held.items() if name not in set(made.ids.to_pylist())}
            if made.rows is not None:
                held |= {row["doc_id"]: tuple(row["vector"]) for row in made.rows.to_pylist()}
        assert held == self.state, what

    def write(self, what, names):
        """Change the index and the dictionary; what the dictionary refuses, the index refuses too."""
        vectors, self.fresh = unit(self.fresh, len(names), M), self.fresh + 1
        new = {name: tuple(vector) for name, vector in zip(names, vectors.tolist(), strict=True)}
        one, number = (documents(names), Encoded(vectors)), self.log.last(LeafMap.open(self.root).manifest.log) + 1
        match what:
            case "add" if self.state.keys() & new.keys():
                with pytest.raises(InputError):
                    change.add(self.root, self.assign, [one], FACTOR)
            case "add" | "upsert":
                getattr(change, what)(self.root, self.assign, [one], FACTOR)
                self.state |= new
            case "delete" if not new.keys() <= self.state.keys():
                with pytest.raises(InputError):
                    change.delete(self.root, names)
            case "delete":
                change.fold(self.root, self.assign, FACTOR)
                change.delete(self.root, names)
                self.state = {name: vector for name, vector in self.state.items() if name not in new}
            case "put":
                router = LeafMap.open(self.root).manifest.router
                assert self.log.append(Change(number, "put", self.assign(*one), router=router))
                self.state |= new
            case "drop":
                assert self.log.append(Change(number, "delete", pa.table({"doc_id": names})))
                self.state = {name: vector for name, vector in self.state.items() if name not in new}
            case _:
                chosen = sorted(self.versions)[int(names[0][1:]) % len(self.versions)]
                change.rollback(self.root, chosen)
                self.state = dict(self.versions[chosen])

    def keep_up(self, what, meanwhile):
        """Do what changes no document, while other changes are published; it succeeds, or says why not."""
        commit = leaf_map.commit

        def late(*given):
            leaf_map.commit = commit
            for step in meanwhile:
                self.do(*step)
            return commit(*given)

        leaf_map.commit = late
        try:
            match what:
                case "fold":
                    change.fold(self.root, self.assign, FACTOR)
                case "maintain":
                    maintain(self.root, self.assign.router, SPEC)
                case "pack":
                    pack.pack(self.root)
                case _:
                    compacted(self.root)
        except InputError as error:
            if not meanwhile or "othing was changed" not in str(error):
                raise
        finally:
            leaf_map.commit = commit


@given(STEPS)
@example([("pack", [("rollback", [2])])])
@example([("put", [3]), ("fold", [("fold", [])])])
@example([("put", [3, 4]), ("upsert", [3])])  # a server left the tail: the offline change comes after it
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_history_is_a_dictionarys(tmp_path_factory, assign, write_map, monkeypatch, steps):
    monkeypatch.setattr(pack, "WIDTH", 2)
    monkeypatch.setattr(find, "FEWEST", 1)  # ids are looked up by hashes, as in shards of very many rows
    history = History(tmp_path_factory.mktemp("map"), assign, write_map)
    for step in steps:
        history.do(*step)
    for version, wanted in history.versions.items():
        assert vectors_of(LeafMap.open(history.root, version)) == wanted
    verify(history.root)
    change.fold(history.root, history.assign, FACTOR)
    if history.state:
        _is_searched_whole(LeafMap.open(history.root), history.state)


def _is_searched_whole(there, state):
    """Every document is found by its own vector, whatever was removed and came back."""
    names, vectors = list(state), np.array(list(state.values()), np.float32)
    leaves = np.tile(np.arange(len(there.manifest.counts)), (len(names), 1))
    found = answers(LeafScan.mapped(there).scan(vectors, leaves, len(names)), leaves, len(names), len(names))
    for name, part in zip(names, found, strict=True):
        assert {hit.id for hit in part.hits} == set(names)
        assert part.documents == len(names)
        assert part.hits[0].score >= next(hit.score for hit in part.hits if hit.id == name)

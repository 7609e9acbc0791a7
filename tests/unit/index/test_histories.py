"""Writers that race, and any history of changes: what readers see is what a dictionary would hold."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.index.maintain import maintain
from rayhier.index.verify import verify
from rayhier.model.encoded import Encoded
from rayhier.model.router import load_router
from rayhier.search.answer import answers
from rayhier.search.scan import LeafScan
from rayhier.spec import InputError, JobSpec
from rayhier.storage.leaf_map import LeafMap

from .changes import FACTOR, batch, compacted, content, vectors_of
from .conftest import LEAST, L, M, N, documents, unit


def test_two_writers_at_once_both_land(made):
    """Every writer adds its own document and deletes another: all land, in some order."""
    go = threading.Barrier(6)

    def write(n):
        go.wait()
        if n % 2:
            return change.add(made.root, made.assign, batch([f"w{n}"], n), FACTOR)
        return change.delete(made.root, [f"d{n:03d}"])

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(write, range(6)))
    assert sorted(one.manifest.version for one in done) == [2, 3, 4, 5, 6, 7]
    after = LeafMap.open(made.root)
    wanted = set(made.ids) - {"d000", "d002", "d004"} | {"w1", "w3", "w5"}
    assert {name for name, _ in content(after)} == wanted
    verify(made.root)


def test_two_writers_of_one_id_one_is_refused(made):
    go = threading.Barrier(4)

    def write(n):
        go.wait()
        try:
            return change.add(made.root, made.assign, batch(["same"], n), FACTOR).manifest.version
        except InputError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(write, range(4)))
    assert sorted(isinstance(one, int) for one in done) == [False, False, False, True]
    assert all("in the index already" in one for one in done if isinstance(one, str))
    assert LeafMap.open(made.root).manifest.documents == N + 1
    verify(made.root)


SPEC = JobSpec.model_validate(
    {**LEAST, "router": {"type": "learned_ivf"}, "index": {"vectors": "float32", "leaves_per_document": 2}}
)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "upsert", "delete", "maintain", "compact", "rollback"]),
        st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True),
    ),
    max_size=8,
)


@given(OPERATIONS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_history_is_a_dictionarys(tmp_path_factory, assign, write_map, operations):
    root = tmp_path_factory.mktemp("map")
    ids = [f"k{n}" for n in range(10)]
    first = unit(0, 10, M)
    write_map(root, assign(documents(ids), Encoded.of(first)), L, 2, leaves_per_document=2)
    state = {name: tuple(vector) for name, vector in zip(ids, first.tolist(), strict=True)}
    history, built = [dict(state)], assign
    for step, (what, numbers) in enumerate(operations):
        names = [f"k{n}" for n in numbers]
        fresh = {
            name: tuple(vector) for name, vector in zip(names, unit(step + 100, len(names), M).tolist(), strict=True)
        }
        one = [(documents(names), Encoded.of(unit(step + 100, len(names), M)))]
        folder = LeafMap.open(root).router()
        assign = built if folder is None else Assigner(load_router(folder), SPEC)
        match what:
            case "add" if state.keys() & fresh.keys():
                with pytest.raises(InputError):
                    change.add(root, assign, one, FACTOR)
                continue
            case "add":
                change.add(root, assign, one, FACTOR)
                state |= fresh
            case "upsert":
                change.upsert(root, assign, one, FACTOR)
                state |= fresh
            case "delete" if not fresh.keys() <= state.keys():
                with pytest.raises(InputError):
                    change.delete(root, names)
                continue
            case "delete":
                change.delete(root, names)
                state = {name: vector for name, vector in state.items() if name not in names}
            case "maintain":
                if maintain(root, assign.router, SPEC) is None:
                    continue
            case "compact":
                compacted(root)
            case _:
                version = 1 + numbers[0] % len(history)
                change.rollback(root, version)
                state = dict(history[version - 1])
        history.append(dict(state))
    for version, wanted in enumerate(history, 1):
        there = LeafMap.open(root, version)
        assert vectors_of(there) == wanted
        assert there.manifest.documents == len(wanted)
    verify(root)
    if state:
        _is_searched_whole(LeafMap.open(root), state)


def _is_searched_whole(there, state):
    """Every document is found by its own vector, whatever was removed and came back."""
    names, vectors = list(state), np.array(list(state.values()), np.float32)
    leaves = np.tile(np.arange(len(there.manifest.counts)), (len(names), 1))
    found = answers(LeafScan.mapped(there).scan(vectors, leaves, len(names)), leaves, len(names), len(names))
    for name, part in zip(names, found, strict=True):
        assert {hit.id for hit in part.hits} == set(names)
        assert part.documents == len(names)
        assert part.hits[0].score >= next(hit.score for hit in part.hits if hit.id == name)

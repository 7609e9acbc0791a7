"""Adding, replacing, deleting, compacting, rolling back: what readers see is what a dictionary would hold."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rayhier.index import change
from rayhier.index.compact import instead
from rayhier.index.shards import ranges, write_shard
from rayhier.index.verify import verify
from rayhier.search.lazy import LazyMap
from rayhier.spec import InputError
from rayhier.storage import files, leaf_map
from rayhier.storage.leaf_map import LeafMap

from .conftest import L, M, N, documents, unit

FACTOR = 50.0


def batch(ids, seed=9):
    return [(documents(ids), unit(seed, len(ids), M))]


def compacted(root, shards=2):
    """As the Ray adapter does it, without Ray."""
    base, made = gathered(root, shards)
    return leaf_map.commit(root, instead(base.manifest, made))


def gathered(root, shards=2):
    """The newest version, and its rows in new shards."""
    base = LeafMap.open(root)
    made = []
    for first, last in ranges(base.manifest.counts, shards):
        leaves = range(first, last)
        tables = [base.read(shard, leaves=leaves) for shard in base.manifest.shards]
        name = f"data/compacted-{base.manifest.version:06d}-{first:05d}.parquet"
        made.append(write_shard(root, name, tables, leaves, base.manifest.counts))
    return base, made


def content(there):
    """Every row that counts, by id and rank; RuntimeError where one stands twice."""
    rows = {}
    for shard in there.manifest.shards:
        for row in there.read(shard).to_pylist():
            assert (row["doc_id"], row["rank"]) not in rows
            rows[row["doc_id"], row["rank"]] = row
    return rows


def vectors_of(there):
    return {name: tuple(row["vector"]) for (name, rank), row in content(there).items() if rank == 0}


def test_added_documents_are_found_and_the_old_stay(made):
    before = content(LeafMap.open(made.root))
    after = change.add(made.root, made.assign, batch(["new1", "new2"]), FACTOR)
    assert (after.manifest.version, after.manifest.parent, after.manifest.change) == (2, 1, "add")
    assert after.manifest.documents == N + 2
    rows = content(after)
    assert {key: rows[key] for key in before} == before
    assert {name for name, _ in rows} - {name for name, _ in before} == {"new1", "new2"}
    assert rows["new1", 0]["text"] == "text new1"
    assert verify(made.root) == [1, 2]


def test_an_added_document_lies_where_a_build_would_put_it(made, folder):
    ids = ["new1", "new2", "new3"]
    (one,) = batch(ids)
    after = content(change.add(made.root, made.assign, [one], FACTOR))
    wanted = {(row["doc_id"], row["rank"]): row for row in made.assign(*one).to_pylist()}
    assert {key: row for key, row in after.items() if key[0] in ids} == wanted


def test_several_batches_are_one_version(made):
    after = change.add(made.root, made.assign, batch(["a", "b"]) + batch(["c"], 4), FACTOR)
    assert (after.manifest.version, after.manifest.documents, len(after.manifest.shards)) == (2, N + 3, 5)


@pytest.mark.parametrize("batches", [batch(["new", "d007"]), batch(["x"]) + batch(["x"], 3)])
def test_an_id_that_is_there_is_refused(made, batches):
    with pytest.raises(InputError, match=r"ids: 1 (in the index already|given more than once).*nothing was changed"):
        change.add(made.root, made.assign, batches, FACTOR)
    assert leaf_map.versions(made.root) == [1]


@pytest.mark.parametrize("late", range(7))
def test_an_id_that_is_there_is_refused_in_any_batch(made, monkeypatch, late):
    """Though the ids of the index are read only now and then."""
    scans, find = [], change.find
    monkeypatch.setattr(change, "find", lambda *given: scans.append(1) or find(*given))
    batches = [batch([f"new{number}" if number != late else "d003"])[0] for number in range(7)]
    with pytest.raises(InputError, match=r"ids: 1 in the index already \(version 1\): 'd003'"):
        change.add(made.root, made.assign, iter(batches), FACTOR)
    assert len(scans) <= 4
    assert leaf_map.versions(made.root) == [1]


def test_vectors_of_another_dimension_are_refused(made):
    with pytest.raises(InputError, match="vectors: got dimension 5; allowed: 8, the index's"):
        change.add(made.root, made.assign, [(documents(["a"]), unit(0, 1, 5))], FACTOR)
    assert leaf_map.versions(made.root) == [1]


def test_vectors_that_are_no_numbers_are_refused(made):
    vectors = unit(0, 2, M)
    vectors[1, 1] = np.nan
    with pytest.raises(InputError, match="vectors: 1 of 2 hold NaN or infinity: 'b'"):
        change.add(made.root, made.assign, [(documents(["a", "b"]), vectors)], FACTOR)
    assert leaf_map.versions(made.root) == [1]


def test_nothing_to_add_is_refused(made):
    with pytest.raises(InputError, match="documents: got none"):
        change.add(made.root, made.assign, [], FACTOR)


def test_delete(made):
    after = change.delete(made.root, ["d003", "d150"])
    assert after.manifest.documents == N - 2
    rows = content(after)
    assert {name for name, _ in rows} == set(made.ids) - {"d003", "d150"}
    assert sum(after.manifest.counts) == len(rows)
    verify(made.root)
    older = LeafMap.open(made.root, 1)
    assert {name for name, _ in content(older)} == set(made.ids)


@pytest.mark.parametrize(
    ("ids", "said"), [(["d003", "nobody"], "ids: 1 not in the index.*'nobody'"), ([], "ids: got none")]
)
def test_unknown_ids_are_refused(made, ids, said):
    with pytest.raises(InputError, match=said):
        change.delete(made.root, ids)
    assert leaf_map.versions(made.root) == [1]


def test_a_deleted_document_can_come_back(made):
    change.delete(made.root, ["d003"])
    after = change.add(made.root, made.assign, batch(["d003"]), FACTOR)
    assert vectors_of(after)["d003"] == tuple(unit(9, 1, M)[0].tolist())
    assert after.manifest.documents == N


def test_upsert_replaces_and_adds(made):
    after = change.upsert(made.root, made.assign, batch(["d003", "new"]), FACTOR)
    fresh = unit(9, 2, M)
    found = vectors_of(after)
    assert (found["d003"], found["new"]) == tuple(tuple(row) for row in fresh.tolist())
    assert after.manifest.documents == N + 1
    again = change.upsert(made.root, made.assign, batch(["d003"], 4), FACTOR)
    assert vectors_of(again)["d003"] == tuple(unit(4, 1, M)[0].tolist())
    verify(made.root)


def test_a_leaf_that_is_full_takes_no_more(made):
    near = made.assign.router.centroid_LM[0].numpy()
    vectors = near + 0.05 * unit(3, 100, M)
    after = change.add(made.root, made.assign, [(documents([f"n{n}" for n in range(100)]), vectors)], 1.5)
    most = -(-int(1.5 * sum(after.manifest.counts)) // L)
    assert max(after.manifest.counts) <= most + 1
    assert after.manifest.moved > 0
    assert after.manifest.documents == N + 100
    verify(made.root)


def test_compaction_changes_nothing_a_reader_sees(made):
    change.add(made.root, made.assign, batch([f"n{n}" for n in range(30)]), FACTOR)
    change.delete(made.root, ["d001", "n4"])
    before = change.upsert(made.root, made.assign, batch(["d002"], 4), FACTOR)
    after = compacted(made.root)
    assert content(after) == content(before)
    assert (after.manifest.documents, after.manifest.counts) == (before.manifest.documents, before.manifest.counts)
    assert (len(after.manifest.shards), after.manifest.removed) == (2, [])
    verify(made.root)


def test_compacting_twice_gives_the_same_bytes(made):
    change.add(made.root, made.assign, batch(["n1", "n2"]), FACTOR)
    first = compacted(made.root)
    change.rollback(made.root, 2)
    second = compacted(made.root)
    assert [shard.file.sha256 for shard in first.manifest.shards] == [
        shard.file.sha256 for shard in second.manifest.shards
    ]


def test_what_lands_during_a_compaction_stays(made):
    base = LeafMap.open(made.root)
    change.add(made.root, made.assign, batch(["n1"]), FACTOR)
    change.delete(made.root, ["d001", "d002"])
    now = content(LeafMap.open(made.root))
    shards = []
    for first, last in ranges(base.manifest.counts, 2):
        tables = [base.read(shard, leaves=range(first, last)) for shard in base.manifest.shards]
        shards.append(
            write_shard(made.root, f"data/late-{first}.parquet", tables, range(first, last), base.manifest.counts)
        )
    after = leaf_map.commit(made.root, instead(base.manifest, shards))
    assert content(after) == now
    verify(made.root)
    with pytest.raises(InputError, match=r"compact: version 4 \(compact\) no longer consists of what was compacted"):
        leaf_map.commit(made.root, instead(base.manifest, shards))


def test_what_a_rollback_removes_again_is_not_brought_back_by_a_compaction(made):
    change.delete(made.root, ["d007"])
    change.rollback(made.root, 1)
    base, shards = gathered(made.root)
    change.rollback(made.root, 2)
    with pytest.raises(InputError, match=r"compact: version 4 \(rollback\) no longer consists of what was compacted"):
        leaf_map.commit(made.root, instead(base.manifest, shards))
    assert ("d007", 0) not in content(LeafMap.open(made.root))
    verify(made.root)


def test_a_damaged_file_is_named_by_whoever_reads_it(made):
    shard = LeafMap.open(made.root).manifest.shards[1]
    path = made.root / shard.file.name
    whole = path.read_bytes()
    page = bytes(one ^ 255 if 100 <= number < 140 else one for number, one in enumerate(whole))
    for damaged in (whole[: len(whole) // 2], page, None):
        path.unlink() if damaged is None else files.replace(path, damaged)
        for work in (
            lambda: change.add(made.root, made.assign, batch(["new"]), FACTOR),
            lambda: change.delete(made.root, ["d001"]),
        ):
            with pytest.raises(InputError, match=f"{shard.file.name}: cannot be read: .*rebuild"):
                work()
    assert leaf_map.versions(made.root) == [1]


def test_rollback(made):
    before = content(LeafMap.open(made.root))
    change.delete(made.root, ["d001"])
    after = change.rollback(made.root, 1)
    assert (after.manifest.version, after.manifest.parent, after.manifest.change) == (3, 2, "rollback")
    assert content(after) == before
    change.add(made.root, made.assign, batch(["new"]), FACTOR)
    assert (
        content(LeafMap.open(made.root)).keys()
        == before.keys() | {("new", 0), ("new", 1)} & content(LeafMap.open(made.root)).keys()
    )
    with pytest.raises(InputError, match="holds no version 9; allowed: 1, 2, 3, 4"):
        change.rollback(made.root, 9)
    verify(made.root)


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


def test_no_space_left_leaves_the_version_that_was(made, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_parquet", full)
    with pytest.raises(OSError, match="No space left"):
        change.add(made.root, made.assign, batch(["new"]), FACTOR)
    monkeypatch.undo()
    assert leaf_map.versions(made.root) == [1]
    verify(made.root)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "upsert", "delete", "compact", "rollback"]),
        st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True),
    ),
    max_size=8,
)


@given(OPERATIONS)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_history_is_a_dictionarys(tmp_path_factory, assign, write_map, operations):
    root = tmp_path_factory.mktemp("map")
    ids = [f"k{n}" for n in range(10)]
    first = unit(0, 10, M)
    write_map(root, assign(documents(ids), first), L, 2, leaves_per_document=2)
    state = {name: tuple(vector) for name, vector in zip(ids, first.tolist(), strict=True)}
    history = [dict(state)]
    for step, (what, numbers) in enumerate(operations):
        names = [f"k{n}" for n in numbers]
        fresh = {
            name: tuple(vector) for name, vector in zip(names, unit(step + 100, len(names), M).tolist(), strict=True)
        }
        one = [(documents(names), unit(step + 100, len(names), M))]
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
    for name, part in zip(names, LazyMap(there).search(vectors, leaves, len(names)), strict=True):
        assert {hit.id for hit in part.hits} == set(names)
        assert part.visited == len(names)
        assert part.hits[0].score >= next(hit.score for hit in part.hits if hit.id == name)

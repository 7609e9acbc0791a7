"""The change log: numbers without a gap, one writer a number, damage named, changes gathered into one object."""

import pyarrow as pa
import pytest

from rayhier.spec import InputError
from rayhier.storage.change_log import LOG, Change, ChangeLog, FencedError
from rayhier.storage.writer_lease import leased

ROWS = pa.table({"doc_id": ["a", "b", "a"], "text": ["x", "y", "z"]})


def change(number, names=("a",), **more):
    return Change(number, "delete", pa.table({"doc_id": list(names)}), **more)


@pytest.fixture
def log(folder):
    return ChangeLog(folder)


def test_changes_come_back_as_they_were(folder, log):
    assert log.last() == 0
    assert list(log.after(0)) == []
    assert log.append(Change(1, "put", ROWS, key="k", body="b"))
    assert log.append(change(2, ["c", "c"]))
    first, second = ChangeLog(folder).after(0)
    assert (first.kind, first.key, first.body, first.rows) == ("put", "k", "b", ROWS)
    assert first.ids.to_pylist() == ["a", "b"]
    assert second.ids.to_pylist() == ["c"]
    assert second.rows is None
    assert [found.number for found in log.after(1)] == [2]
    assert log.last() == 2
    assert log.last(7) == 7


@pytest.mark.parametrize("read", ["there", "gather"])
def test_what_was_gathered_while_singles_were_read_counts_in_place_of_them(folder, log, monkeypatch, read):
    """A stale Writer puts change 1 again, under a number that gathering has freed, while another process reads it."""
    for number in (1, 2, 3):
        log.append(change(number))
    stale = change(1, ["stale"]).packed()
    once, plain = [], type(folder).read_bytes

    def read_bytes(path):
        if not once:
            once.append(path)
            ChangeLog(folder).gather(1, 2)
            (folder / LOG / "000000000001.change").write_bytes(stale)
        return plain(path)

    monkeypatch.setattr(type(folder), "read_bytes", read_bytes)
    if read == "there":
        assert [made.ids.to_pylist() for made in log.there()] == [["a"]] * 3
    else:
        assert not log.gather(1, 1)


def test_damage_is_named_and_what_came_before_is_read(folder, log):
    for number in (1, 2, 3):
        log.append(change(number))
    path = folder / LOG / "000000000002.change"
    data = path.read_bytes()
    for damaged in (data[:-3], data[:100] + b"!" + data[101:], b"", b"x" * 200):
        path.unlink()
        path.write_bytes(damaged)
        read = log.after(0)
        assert next(read).number == 1
        with pytest.raises(InputError, match=r"000000000002\.change: damaged"):
            next(read)
    path.unlink()
    with pytest.raises(InputError, match=r"000000000002\.change: no such object, .* change 3"):
        list(log.after(0))
    path.write_bytes((folder / LOG / "000000000003.change").read_bytes())
    with pytest.raises(InputError, match="holds change 3, not 2"):
        list(log.after(0))


def test_gathered_changes_are_one_object(folder, log):
    for number in range(1, 8):
        log.append(change(number, [str(number)]))
    log.gather(1, 5)
    assert sorted(path.name for path in (folder / LOG).iterdir()) == [
        "000000000001-000000000005.changes",
        "000000000006.change",
        "000000000007.change",
    ]
    assert [found.ids.to_pylist() for found in log.after(0)] == [[str(number)] for number in range(1, 8)]
    assert [found.number for found in log.after(3)] == [4, 5, 6, 7]
    assert [found.number for found in log.after(0, 1)] == [1]
    assert [found.number for found in log.after(5, 6)] == [6]
    log.gather(1, 5)  # again: they are gone
    assert not log.gather(6, 7), "not the newest"
    log.gather(6, 6)
    assert [found.number for found in log.after(4)] == [5, 6, 7]
    assert log.last() == 7
    assert log.append(change(8))
    assert [found.number for found in log.after(6)] == [7, 8]


def test_a_log_with_a_gap_goes_on_behind_it(folder, log):
    """Another index was served in between: its log has the changes of the gap."""
    for number in (1, 2, 3):
        log.append(change(number))
    log.gather(1, 2)
    for number in (7, 8, 9):
        log.append(change(number))
    log.gather(3, 3)
    log.gather(7, 8)
    assert [made.number for made in log.there()] == [1, 2, 3, 7, 8, 9]
    assert [made.number for made in log.there(1, 8)] == [2, 3, 7, 8]
    assert [made.number for made in log.after(6)] == [7, 8, 9]
    with pytest.raises(InputError, match=r"000000000004\.change: no such object, .* change 9"):
        list(log.after(0))


def test_what_writers_that_died_left_single_is_gathered(folder, log):
    for number in range(1, 10):
        log.append(change(number))
    left = (folder / LOG / "000000000002.change").read_bytes()
    log.gather(1, 5)
    (folder / LOG / "000000000002.change").write_bytes(left)  # the Writer died before it removed this one
    for last, singles in ((7, 2), (7, 2), (9, 1)):
        log.tidy(last)
        names = [path.name for path in (folder / LOG).iterdir()]
        assert sum(name.endswith(".change") for name in names) == singles
        assert [found.number for found in log.after(0)] == list(range(1, 10))


def test_a_number_is_given_once_even_after_its_object_was_gathered(log):
    for number in range(1, 6):
        log.append(change(number, ["first"]))
    log.tidy(5)
    assert not any(log.append(change(number, ["second"])) for number in range(1, 6))
    log.forget(5)
    assert log.last() == 5
    assert [found.ids.to_pylist() for found in log.after(0)] == [["first"]] * 5
    assert log.append(change(6))


def test_a_writer_whose_epoch_is_over_learns_it_from_the_log(folder, log):
    with leased(folder) as held:
        assert log.append(change(1, epoch=held.epoch))
    with leased(folder) as later:
        assert later.epoch > held.epoch
        with pytest.raises(FencedError):
            log.append(change(2, epoch=held.epoch))
        assert log.append(change(3, epoch=later.epoch))

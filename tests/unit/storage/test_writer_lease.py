"""The lease of a Writer: one holder at a time, living holders keep it, dead ones and wrong clocks do not."""

import os

import pytest

from rayhier.spec import InputError
from rayhier.storage import files, writer_lease
from rayhier.storage.leaf_map import now
from rayhier.storage.liveness import Process
from rayhier.storage.writer_lease import LeaseRecord, leased, newest

HERE = Process.here()


@pytest.mark.parametrize(
    ("process", "until", "holds"),
    [
        (HERE, 9.0, True),
        (HERE, -9.0, False),
        (Process(os.getpid(), HERE.host, HERE.machine, "1"), 9.0, False),
        (Process(4_000_000, HERE.host, HERE.machine, "1"), 9.0, False),
        (Process(4_000_000, HERE.host, "the same boot, another namespace", "1"), 9.0, True),
        (Process(4_000_000, "elsewhere", None, None), 9.0, True),
        (HERE, 3600.0, False),
    ],
    ids=["living", "over", "process id used again", "dead", "container of one host name", "other machine", "clock"],
)
def test_a_lease_holds_while_its_process_may_live_and_its_time_is_not_over(process, until, holds):
    assert LeaseRecord(1, process, now() + until).holds is holds


def test_of_two_that_take_a_lease_at_once_one_has_it(folder, monkeypatch):
    plain, others = files.create, []

    def create(path, data):  # another server is faster
        monkeypatch.setattr(files, "create", plain)
        others.append(leased(folder))
        others.append(others[0].__enter__())
        return plain(path, data)

    monkeypatch.setattr(files, "create", create)
    with pytest.raises(InputError, match="another writer took it"), leased(folder):
        pass
    assert others[1]()
    others[0].__exit__(None, None, None)


def test_a_number_that_is_free_again_is_no_lease(folder, monkeypatch):
    monkeypatch.setattr(LeaseRecord, "holds", property(lambda _: False))
    with leased(folder), leased(folder) as third:
        monkeypatch.setattr(writer_lease, "newest", lambda _: None)  # as read long ago
        assert third.epoch == 2
        with pytest.raises(InputError, match="another writer took it"), leased(folder):
            pass
    monkeypatch.undo()
    assert newest(folder).number == 2

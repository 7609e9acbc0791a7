"""Two Writers of one change log, whose steps interleave in any order, while the lease of each may be taken at any time.

A Writer here does with the log and the lease what a server's Writer does. It runs in a thread that waits for its turn
before each operation on storage. Hypothesis chooses whose turn it is.
"""

import itertools
import threading
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rayhier.storage import files, writer_lease
from rayhier.storage.change_log import Change, ChangeLog, FencedError
from rayhier.storage.remote import Remote

OPERATIONS = (
    (files, "create"),
    (files, "names"),
    (files, "replace"),
    *((kind, name) for kind in (Path, Remote) for name in ("read_bytes", "unlink")),
)
STEPS = st.one_of(
    *[st.tuples(st.just("write"), st.integers(0, 20))] * 3,
    *[st.just(("fold",))] * 2,
    st.sampled_from([("begin",), ("forget",), ("read",)]),
)
SCRIPTS = st.lists(STEPS, min_size=3, max_size=8)
TURNS = st.one_of(st.integers(1, 4), st.integers(1, 80))
"""Operations that a Writer does before the next turn: a few, or as many as it takes to fold and go on."""
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Making an example smaller takes minutes here."""
KEPT = 2


class Writer:
    """What a server does to a log, without the server."""

    def __init__(self, name, root, answered):
        self.name, self.root, self.log, self.answered = name, root, ChangeLog(root), answered
        self.closing, self.held, self.seen, self.made = ExitStack(), None, 0, 0
        self.keys: dict[str, int] = {}

    def begin(self):
        self.closing.close()
        self.held = self.closing.enter_context(writer_lease.leased(self.root, 1e6))
        self.catch_up()

    def catch_up(self):
        for change in self.log.there(self.seen):
            self.seen = change.number
            self.keys[change.key] = change.number

    def write(self, request):
        """Make a change once, however often and at whichever Writer its key comes."""
        key, sent = f"k{request}", f"{self.name}{self.made}"
        self.made += 1
        if self.held is None or not self.held():
            self.begin()
        for tries in itertools.count():
            if not self.held() or key in self.keys:
                return
            assert tries < 20, "the number is taken, but the log does not go on"
            table = pa.table({"doc_id": [sent]})
            try:
                change = Change(self.seen + 1, "delete", table, key, epoch=self.held.epoch)
                if self.log.append(change):
                    self.seen, self.keys[key] = change.number, change.number
                    if self.held():
                        self.answered[change.number] = key, sent
                    return
                self.catch_up()
            except FencedError:
                self.held.lost.set()

    def fold(self):
        self.log.tidy(self.seen)

    def forget(self):
        self.log.forget(self.seen - KEPT)

    def read(self):
        """Read as a search does, that knows up to which change it reads."""
        numbers = [change.number for change in self.log.there(max(0, self.seen - KEPT), self.seen)]
        assert numbers == list(range(max(0, self.seen - KEPT) + 1, self.seen + 1))
        changes = list(self.log.after(max(0, self.seen - 1), self.seen))
        assert all(self.keys[change.key] == change.number for change in changes)


class Turns:
    """Threads of which one at a time runs, from one operation on storage to the next."""

    def __init__(self, works):
        self._goes = [threading.Semaphore(0) for _ in works]
        self._stops, self._here, self.error = threading.Semaphore(0), threading.local(), None
        self.left = set(range(len(works)))
        self._threads = [threading.Thread(target=self._run, args=each) for each in enumerate(works)]
        for thread in self._threads:
            thread.start()

    def _run(self, number, work):
        self._here.number = number
        self._goes[number].acquire()
        try:
            work()
        except BaseException as error:  # noqa: BLE001  the thread that waits raises it
            self.error = error
        self.left.discard(number)
        self._stops.release()

    def pause(self):
        """Wait for the next turn, in a thread of these; other threads go on."""
        number = getattr(self._here, "number", None)
        if number is not None:
            self._stops.release()
            self._goes[number].acquire()

    def give(self, number):
        """Let a thread run up to its next operation on storage."""
        self._goes[number].release()
        self._stops.acquire()

    def end(self):
        """Let all threads run to their ends, one after another; raises what went wrong in one."""
        while self.left:
            self.give(min(self.left))
        if self.error is not None:
            raise self.error


def interleaved(root, scripts, draw):
    """Run the scripts of Writers in an order that is drawn; returns what was answered, and the log at the end."""
    answered: dict[int, tuple[str, str]] = {}
    twice = []

    class Answers(dict):
        def __setitem__(self, number, sent):
            twice.extend([number] if number in self else [])
            super().__setitem__(number, sent)

    answered = Answers()
    writers = [Writer(name, root, answered) for name in "ABC"[: len(scripts)]]

    def work(writer, script):
        try:
            for name, *rest in [("begin",), *script]:
                try:
                    getattr(writer, name)(*rest)
                except writer_lease.InputError:  # the other took the lease at this moment
                    writer.held = None
        finally:
            if writer.held is not None:
                writer.held.lost.set()  # the lease is not given back
            writer.closing.close()

    turns = Turns([lambda each=each: work(*each) for each in zip(writers, scripts, strict=True)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_lease.LeaseRecord, "holds", property(lambda _: False))  # it may be taken at any time
        for owner, name in OPERATIONS:
            plain = getattr(owner, name)

            def waits(*arguments, _plain=plain, **more):
                turns.pause()
                return _plain(*arguments, **more)

            patch.setattr(owner, name, waits)
        try:
            while turns.left and turns.error is None:
                number, steps = draw(sorted(turns.left))
                for _ in range(steps):
                    if number in turns.left:
                        turns.give(number)
        finally:
            turns.end()
    assert not twice
    return answered, list(ChangeLog(root).there())


def test_nothing_answered_is_lost_and_no_key_runs_twice(folder):
    runs = itertools.count()

    @settings(deadline=None, max_examples=4 if isinstance(folder, Remote) else 100, phases=PHASES)
    @given(scripts=st.lists(SCRIPTS, min_size=2, max_size=2), data=st.data())
    def check(scripts, data):
        root = folder / f"{next(runs)}"
        answered, log = interleaved(root, scripts, lambda left: data.draw(st.tuples(st.sampled_from(left), TURNS)))
        there = {change.number: change for change in log}
        begin = min(there, default=0)
        assert sorted(there) == list(range(begin, begin + len(there)))
        for number, (key, sent) in answered.items():
            if number >= begin:
                assert (there[number].key, there[number].ids.to_pylist()) == (key, [sent])
        keys = [change.key for change in log]
        assert len(set(keys)) == len(keys)

    check()

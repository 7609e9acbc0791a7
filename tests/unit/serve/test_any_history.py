"""After any history of changes, folds, rollbacks, restarts and faults, a server has what a dictionary has."""

import errno
import itertools
import os
import random
from unittest.mock import AsyncMock

import pyarrow as pa
import pytest

from rayhier.index.verify import verify
from rayhier.search.segment.stored import Listing
from rayhier.search.snapshot import Snapshot
from rayhier.serve.backend.follower import Follower
from rayhier.storage import current, files
from rayhier.storage.change_log import LOG, Change, ChangeLog

from ...conftest import leaf_map_of
from .conftest import TEXTS, WORDS
from .server import doc, root_of

NAMES = [*(f"d{n}" for n in range(10)), *(f"n{n}" for n in range(10))]
"""Ids of documents that are written. The first ten are in the index at the start."""
STEPS = {"change": 8, "send_again": 3, "fold": 4, "roll_back": 2, "restart": 1, "append_elsewhere": 2}
STEPS |= dict.fromkeys(("fill_the_disk", "lose_an_answer", "fail_within_a_fold", "tear_the_log"), 1)
"""Methods of `History`, and how often they are drawn."""
FULL = os.strerror(errno.ENOSPC)


def fails(*_):
    raise OSError(errno.ENOSPC, FULL)


class History:
    """A server that writes, and the documents and log number that it must have."""

    def __init__(self, opened, work, patch, seed):
        self.opened, self.work, self.patch, self.draw = opened, work, patch, random.Random(seed)
        self.server, self.log = opened(), 0
        self.texts = {f"d{n}": text for n, text in enumerate(TEXTS)}
        self.held, self.seen, self.sent = {1: self.texts}, [], []
        self.words = map("first{}".format, itertools.count())

    def drawn(self):
        """A change that is possible: its kind, and what it sends."""
        if self.draw.random() < 0.3:
            return "delete", self.draw.sample(sorted(self.texts), 2)
        names = self.draw.sample(NAMES, 2)
        return "put", [doc(name, " ".join([*self.draw.sample(WORDS, 3), next(self.words)])) for name in names]

    def send(self, kind, sent, key=None, status=200):
        headers = {} if key is None else {"Idempotency-Key": key}
        return getattr(self.server, kind)(*sent, status=status, **headers)

    def noted(self, kind, sent):
        """What the answer of a change says, which the dictionary has from here on."""
        self.log += 1
        new = {document["id"]: document["text"] for document in sent} if kind == "put" else {}
        replaced = len(new.keys() & self.texts.keys())
        kept = {name: text for name, text in self.texts.items() if name not in sent} if kind == "delete" else self.texts
        self.texts = kept | new
        return {"documents": len(sent), "replaced": replaced, "log": self.log}

    def has_tail(self):
        return leaf_map_of(self.work).manifest.log < self.log

    def nearest(self):
        text = " ".join(self.draw.sample(WORDS, 3))
        return lambda: {row["id"]: row["score"] for row in self.server.search(text, 30, beam=9)["results"]}

    # Steps

    def change(self):
        made, key = self.drawn(), f"key-{self.log}"
        told = self.send(*made, key)
        assert told.items() >= self.noted(*made).items()
        self.sent.append((*made, key, told))

    def send_again(self):
        if self.sent:
            *made, key, told = self.draw.choice(self.sent)
            again = self.send(*made, key)
            assert [again[name] == told[name] for name in ("documents", "replaced", "log")] == [True] * 3
            assert self.send(*self.drawn(), key, status=422)["error"]["code"] == "key_reused"

    def fold(self):
        nearest, version, had_tail = self.nearest(), self.server.index()["version"], self.has_tail()
        before = nearest()
        self.server.fold()
        assert nearest() == pytest.approx(before, abs=1e-6)
        assert (self.server.index()["version"] > version) or not had_tail
        assert not self.has_tail()
        self.held[self.server.index()["version"]] = self.texts

    def roll_back(self):
        number = self.draw.choice(sorted(self.held)[-6:])
        told = self.server.roll_back(number)
        self.texts = self.held[told["version"]] = self.held[number]
        assert (told["log"], told["documents"]) == (self.log, len(self.texts))

    def restart(self):
        self.server.close()
        self.server = self.opened()

    def append_elsewhere(self):
        """Another process takes the next number. The server learns of it as it writes or folds."""
        gone = [self.draw.choice(sorted(self.texts))]
        made = Change(self.log + 1, "delete", pa.table({"doc_id": gone}), documents=1)
        assert ChangeLog(root_of(self.work)).append(made)
        self.noted("delete", gone)
        self.draw.choice([self.change, self.server.fold])()

    def fill_the_disk(self):
        with self.patch.context() as patch:
            patch.setattr(files, "create", fails)
            refused = self.send(*self.drawn(), status=503)["error"]
            assert (refused["code"], FULL in refused["message"]) == ("storage", True)
            if self.has_tail():
                with pytest.raises(OSError, match=FULL):
                    self.server.fold()

    def lose_an_answer(self):
        """Storage makes a change durable, and then fails. Sent again, the change counts once."""
        plain, made, key = ChangeLog.append, self.drawn(), f"key-{self.log}"
        with self.patch.context() as patch:
            patch.setattr(ChangeLog, "append", lambda *given: (plain(*given), fails()))
            assert self.send(*made, key, status=503)["error"]["code"] == "storage"
        assert self.send(*made, key).items() >= self.noted(*made).items()

    def fail_within_a_fold(self):
        """A version is published that nobody serves yet. The next fold, or a rollback, comes after it."""
        if self.has_tail():
            with self.patch.context() as patch:
                patch.setattr(Follower, "open", AsyncMock(side_effect=fails))
                with pytest.raises(OSError, match=FULL):
                    self.server.fold()

    def tear_the_log(self):
        torn = root_of(self.work) / LOG / f"{self.log + 1:012d}.change"
        torn.write_bytes(b"torn")
        refused = self.send(*self.drawn(), status=503)["error"]
        assert (refused["code"], torn.name in refused["message"]) == ("log_damaged", True)
        torn.unlink()
        self.restart()

    # What is there

    def check(self):
        index = self.server.index()
        assert (index["documents"], index["log"]) == (len(self.texts), self.log)
        assert self.server.all_ids() == sorted(self.texts)
        name, text = self.draw.choice(sorted(self.texts.items()))
        assert self.server.document(name)["text"] == text
        self.seen.append((index["version"], self.log, self.texts))

    def check_offline(self):
        """Offline search finds what the server finds, and any state before is there too."""
        text = " ".join(self.draw.sample(WORDS, 2))
        (answer,) = Snapshot.open(self.work).search([text], 20)
        assert [hit.id for hit in answer.hits] == self.server.ids(text, 20)
        for version, log, texts in self.draw.sample(self.seen, 6):
            there = Snapshot.of_version(self.work, current.read(self.work), version, log=log)
            found = there.documents(Listing("", 1_000))
            assert {document.id: document.text for document in found} == texts
        verify(root_of(self.work))


@pytest.mark.parametrize(("seed", "groups"), [(1, 1), (2, 3)])
def test_a_server_has_what_a_dictionary_has(open_server, work, monkeypatch, seed, groups):
    history = History(lambda: open_server(shard_groups=groups), work, monkeypatch, seed)
    for step in history.draw.choices(list(STEPS), list(STEPS.values()), k=30) + list(STEPS):
        getattr(history, step)()
        history.check()
    history.check_offline()

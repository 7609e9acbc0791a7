"""Freed memory goes back to the system, where the C library is glibc."""

import subprocess
import sys

import pytest

from rayhier.search import memory

CODE = """
import numpy as np
from rayhier.search.memory import give_back

def resident():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

blocks = [np.ones(8_000) for _ in range(3_000)]
kept = blocks[-1]  # the end of the heap stays in use
del blocks
before = resident()
give_back()
print(before - resident())
"""


@pytest.mark.skipif(memory._trim() is None, reason="the C library is not glibc")
def test_memory_below_what_is_in_use_goes_back():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 100_000, "kB of 192,000"


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(memory, "_trim", lambda: None)
    memory.give_back()


SETTLED = """
import gc, weakref
from rayhier.search.memory import settle

class Loop:
    def __init__(self):
        self.me = self

first = Loop()
seen = weakref.ref(first)
settle()
assert gc.get_freeze_count() > 1_000
del first
gc.collect()
assert seen() is not None, "what was alive is looked at"
settle()
assert seen() is None, "what an earlier call left out is never looked at"
"""


def test_what_is_alive_is_left_out_of_collections_until_the_next_call():
    subprocess.run([sys.executable, "-c", SETTLED], check=True)

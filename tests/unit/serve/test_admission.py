"""Which questions are let in: all of a burst, and of an overload as many as do not wait for long."""

import heapq
from contextlib import ExitStack

import pytest

from rayhier.serve.backend.queues import CALM, QUEUED, STANDING, Admission
from rayhier.serve.errors import ApiError


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def served(rate, seconds, each, most, sizes=(1,)):
    """A server that works on one question at a time: seconds that each admitted one took, and how many were refused."""
    clock = Clock()
    admission, free, leaving, took, refused = Admission(most, clock), 0.0, [], [], 0
    for number in range(int(rate * seconds)):
        arrives = number / rate
        while leaving and leaving[0][0] <= arrives:
            clock.now, _, block = heapq.heappop(leaving)
            block.close()
        clock.now, block, size = arrives, ExitStack(), sizes[number % len(sizes)]
        try:
            block.enter_context(admission(size))
        except ApiError:
            refused += 1
            continue
        free = max(free, arrives) + each * size
        took.append(free - arrives)
        heapq.heappush(leaving, (free, number, block))
    return sorted(took), refused


def test_three_times_too_much_is_answered_about_as_fast_as_ever():
    took, refused = served(rate=300, seconds=60, each=0.01, most=0.05)
    assert took[int(0.99 * len(took))] <= (QUEUED + 3) * 0.01
    assert len(took) >= 0.95 * 60 / 0.01  # and the server is never idle
    assert refused == 60 * 300 - len(took)


def test_a_few_clients_are_let_in_however_long_a_question_takes():
    """Eight clients, each of which asks again once it is answered, of a server that takes a quarter of a second."""
    clock = Clock()
    admission, there = Admission(0.05, clock), []
    for _ in range(8):
        there.append(ExitStack())
        there[-1].enter_context(admission(1))
    for _ in range(200):
        clock.now += 0.25
        there.pop(0).close()
        there.append(ExitStack())
        there[-1].enter_context(admission(1))
    assert admission.wait > 1.0


def test_a_burst_is_let_in():
    clock = Clock()
    admission = Admission(0.05, clock)
    for _ in range(30):  # so that it knows how long a question takes
        with admission(1):
            clock.now += 0.01
    with ExitStack() as there:
        for _ in range(100):
            clock.now += STANDING / 200
            there.enter_context(admission(1))
        assert admission.wait > 0.5
        clock.now += 1.1 * STANDING
        with pytest.raises(ApiError, match="questions wait for longer than") as refused:
            there.enter_context(admission(1))
        assert refused.value.status == 503
        assert "Retry-After" in (refused.value.headers or {})
    with admission(1):  # the line is gone
        pass


def test_one_large_request_is_no_line():
    clock = Clock()
    admission = Admission(0.05, clock)
    for _ in range(30):
        with admission(1):
            clock.now += 0.01
    with admission(64):
        assert admission.wait == 0
        clock.now += 0.3
        with admission(1):
            assert admission.wait == pytest.approx(0.01, rel=0.3)


def test_what_fails_says_nothing_of_speed():
    clock = Clock()
    admission = Admission(0.05, clock)
    with admission(1):
        clock.now += 0.01
    with ExitStack() as there:
        there.enter_context(admission(1))
        there.enter_context(admission(1))
        before = admission.wait
        with pytest.raises(ValueError, match="bad"), admission(1):
            raise ValueError("bad")
        assert admission.wait == before
    assert admission.wait == 0


def taught(*sizes, each=0.01):
    """An admission with its clock, after requests of these sizes that took so long a question."""
    clock = Clock()
    admission = Admission(0.05, clock)
    for size in sizes:
        with admission(size):
            clock.now += each * size
    return admission, clock


def test_a_burst_right_after_a_refusal_is_refused():
    admission, clock = taught(*[1] * 50)

    def burst():
        """How many of twenty questions at one time are let in."""
        with ExitStack() as there:
            for number in range(20):
                try:
                    there.enter_context(admission.counting(1))
                except ApiError:
                    return number
            return 20

    assert burst() == 20
    with ExitStack() as there:
        for _ in range(20):
            there.enter_context(admission.counting(1))
        clock.now += 1.1 * STANDING
        with pytest.raises(ApiError):
            there.enter_context(admission.counting(1))
    clock.now += 0.9 * CALM
    assert 5 <= burst() < 20
    clock.now += 1.1 * CALM
    assert burst() == 20


@pytest.mark.parametrize("sizes", [(1,), (1, 4), (8, 1, 1, 2)])
def test_requests_of_several_sizes(sizes):
    """What a server can do is let in; of three times as much, about as many questions as it can do."""
    mean = sum(sizes) / len(sizes)
    took, refused = served(rate=60 / mean, seconds=30, each=0.01, most=0.2, sizes=sizes)
    assert refused == 0
    took, refused = served(rate=300 / mean, seconds=60, each=0.01, most=0.2, sizes=sizes)
    assert 0.5 < refused / (refused + len(took)) < 0.8
    assert took[int(0.99 * len(took))] <= 0.2 + 2 * 0.01 * max(sizes)

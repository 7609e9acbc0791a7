"""How requests wait: which questions are let in, which are asked together, and what each caller gets."""

import asyncio
import contextvars
import heapq
from contextlib import ExitStack

import pytest

from rayhier.serve.backend.queues import CALM, QUEUED, STANDING, Admission, Batches
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


@pytest.mark.parametrize("sizes", [(1,), (1, 4), (8, 1, 1, 2)])
def test_three_times_too_much_is_answered_about_as_fast_as_ever(sizes):
    """What a server can do is let in; of three times as much, about as many questions as it can do."""
    mean = sum(sizes) / len(sizes)
    assert served(rate=60 / mean, seconds=30, each=0.01, most=0.2, sizes=sizes)[1] == 0
    took, refused = served(rate=300 / mean, seconds=60, each=0.01, most=0.2, sizes=sizes)
    assert 0.5 < refused / (refused + len(took)) < 0.8
    assert took[int(0.99 * len(took))] <= 0.2 + 2 * 0.01 * max(sizes)
    if sizes == (1,):  # at a smaller limit, the line has few questions, and the server is never idle
        took, _ = served(rate=300, seconds=60, each=0.01, most=0.05)
        assert took[int(0.99 * len(took))] <= (QUEUED + 3) * 0.01
        assert len(took) >= 0.95 * 60 / 0.01


def test_one_large_request_is_no_line_and_what_fails_says_nothing_of_speed():
    admission, clock = taught(*[1] * 30)
    with admission(64):
        assert admission.wait == 0
        clock.now += 0.3
        with admission(1):
            before = admission.wait
            assert before == pytest.approx(0.01, rel=0.3)
            with pytest.raises(ValueError, match="bad"), admission(1):
                raise ValueError("bad")
            assert admission.wait == before


def taught(*sizes):
    """An admission with its clock, after requests of these sizes that took 10 ms a question."""
    clock = Clock()
    admission = Admission(0.05, clock)
    for size in sizes:
        with admission(size):
            clock.now += 0.01 * size
    return admission, clock


def test_a_burst_is_let_in_but_for_one_right_after_a_refusal():
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
        with pytest.raises(ApiError, match="questions wait for longer than") as refused:
            there.enter_context(admission.counting(1))
        assert (refused.value.status, "Retry-After" in refused.value.headers) == (503, True)
    clock.now += 0.9 * CALM
    assert 5 <= burst() < 20
    clock.now += 1.1 * CALM
    assert burst() == 20


class Asked:
    """A function over many questions that waits until it is let go, and notes what it was asked."""

    def __init__(self):
        self.batches, self.go = [], asyncio.Event()

    async def __call__(self, questions):
        self.batches.append(list(questions))
        await self.go.wait()
        if "bad" in questions:
            raise ValueError("bad question")
        return [f"{question}!" for question in questions]


async def started(batches, *calls):
    """Tasks for calls, each of which has been put in line; the first is at work before the next is made."""
    tasks = []
    for call in calls:
        tasks.append(asyncio.create_task(batches(*call)))
        await asyncio.sleep(0.01)
    return tasks


async def test_only_equal_keys_go_together_and_sizes_have_a_limit():
    asked = Asked()
    batches = Batches(asked, 4)
    calls = [("first", 1, 0), ("a", 2, 1), ("b", 1, 2), ("c", 2, 1), ("d", 1, 1), ("e", 9, 1)]
    tasks = await started(batches, *calls)
    asked.go.set()
    answers = await asyncio.gather(*tasks)
    assert [answer for answer, _ in answers] == [f"{name}!" for name, *_ in calls]
    assert asked.batches == [["first"], ["a", "c"], ["b"], ["d"], ["e"]]


async def test_an_error_reaches_the_callers_of_its_batch_alone_and_who_left_is_not_asked_for():
    asked = Asked()
    batches = Batches(asked, 10)
    tasks = await started(batches, ("a", 1, 0), ("bad", 1, 1), ("b", 1, 1), ("c", 1, 2), ("left", 1, 2))
    tasks[-1].cancel()
    await asyncio.wait(tasks[-1:])
    asked.go.set()
    a, bad, b, c, left = await asyncio.gather(*tasks, return_exceptions=True)
    assert (a[0], c[0]) == ("a!", "c!")
    assert [str(error) for error in (bad, b)] == ["bad question"] * 2
    assert isinstance(left, asyncio.CancelledError)
    assert asked.batches == [["a"], ["bad", "b"], ["c"]]


async def test_a_batch_that_is_cancelled_is_refused_and_keeps_nobody_waiting():
    """As Serve cancels calls that it has not sent yet; its callers have not left."""

    async def cancelled(_):
        raise asyncio.CancelledError

    batches = Batches(cancelled, 10)
    answers = await asyncio.gather(*(batches(name) for name in "abc"), return_exceptions=True)
    assert [(type(one), one.status) for one in answers] == [(ApiError, 503)] * 3


async def test_batches_do_not_run_in_the_context_of_a_caller():
    """Serve finds in it which request a call was made for, and cancels the calls of one whose client has left."""
    request, seen = contextvars.ContextVar("request", default="none"), []

    async def ask(questions):
        seen.append(request.get())
        return questions

    async def asking(batches):
        request.set("mine")
        await batches("a")

    await asking(Batches(ask, 10))
    assert seen == ["none"]

"""Calls that arrive together are asked together, in order, and each caller gets its own answer or error."""

import asyncio
import contextvars

import pytest

from rayhier.serve.backend.queues import Batches
from rayhier.serve.errors import ApiError


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


async def started(asked, batches, *calls, alone=1):
    """Tasks for calls, once each has been put in line; so many of the first are at work before the next is made."""
    tasks = []
    for number, call in enumerate(calls, start=1):
        tasks.append(asyncio.create_task(batches(*call)))
        while number <= alone and len(asked.batches) < number:
            await asyncio.sleep(0)
    while sum(map(len, asked.batches)) + batches.waiting < len(calls):
        await asyncio.sleep(0)
    return tasks


async def test_only_equal_keys_go_together_and_sizes_have_a_limit():
    asked = Asked()
    batches = Batches(asked, 4)
    calls = [("first", 1, 0), ("a", 2, 1), ("b", 1, 2), ("c", 2, 1), ("d", 1, 1), ("e", 9, 1)]
    tasks = await started(asked, batches, *calls)
    asked.go.set()
    answers = await asyncio.gather(*tasks)
    assert [answer for answer, _ in answers] == [f"{name}!" for name, *_ in calls]
    assert asked.batches == [["first"], ["a", "c"], ["b"], ["d"], ["e"]]


async def test_an_error_reaches_the_callers_of_its_batch_alone():
    asked = Asked()
    batches = Batches(asked, 10)
    tasks = await started(asked, batches, ("a", 1, 0), ("bad", 1, 1), ("b", 1, 1), ("c", 1, 2))
    asked.go.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert answers[0][0] == "a!"
    assert [str(error) for error in answers[1:3]] == ["bad question"] * 2
    assert answers[3][0] == "c!"


async def test_a_caller_that_is_gone_is_not_asked_for():
    asked = Asked()
    batches = Batches(asked, 10)
    tasks = await started(asked, batches, ("a",), ("b",), ("c",))
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    asked.go.set()
    assert [(await task)[0] for task in (tasks[0], tasks[2])] == ["a!", "c!"]
    assert asked.batches == [["a"], ["c"]]


async def test_a_batch_that_is_cancelled_is_refused_and_keeps_nobody_waiting():
    """As Serve cancels calls that it has not sent yet; its callers have not left."""

    async def cancelled(_):
        raise asyncio.CancelledError

    batches = Batches(cancelled, 10)
    answers = await asyncio.gather(*(batches(name) for name in "abc"), return_exceptions=True)
    assert [(type(one), one.status) for one in answers] == [(ApiError, 503)] * 3


async def test_batches_do_not_run_in_the_context_of_a_caller():
    """Serve finds in it which request a call was made for, and cancels the calls of one whose client has left."""
    request = contextvars.ContextVar("request", default="none")
    seen = []

    async def ask(questions):
        seen.append((request.get(), list(questions)))
        await asyncio.sleep(0)
        return questions

    batches = Batches(ask, 10)

    async def asking(name):
        request.set(name)
        await batches(name)

    await asyncio.gather(*(asyncio.create_task(asking(name)) for name in "abc"))
    assert [name for name, _ in seen] == ["none"] * len(seen)
    assert sorted(one for _, own in seen for one in own) == ["a", "b", "c"]

"""A loop whose time passes at once: where nothing is left to do, it is the time of the next timer."""

import asyncio


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop for coroutines that wait for each other and for timers, not for threads or sockets."""

    def __init__(self):
        super().__init__()
        self.now, self.plain_select = 0.0, self._selector.select
        self._selector.select = self.select

    def select(self, timeout=None):
        if timeout is None:
            raise AssertionError("nothing is left that could go on: the coroutines wait for each other")
        self.now += timeout
        return self.plain_select(0)

    def time(self):
        return self.now


def run(coroutine):
    """Run a coroutine to its end; seconds pass without waiting."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)

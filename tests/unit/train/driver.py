"""A training loop for tests, which can ask it for what belongs to its phase."""

from rayhier.train.loop import Loop


class Driver(Loop):
    """A loop that answers for its phase, the phase's learner and its pairs."""

    def __getattr__(self, name):
        phase = self.__dict__["phase"]
        for part in (phase, phase.learner, getattr(phase, "pairs", None)):
            if hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(name)

    def restore_best(self):
        """Go back to the best state, and do what is left then."""
        super().restore_best()
        self.phase.finish()


def run(loop, epochs=None):
    """All passes, or so many; returns the loop."""
    if not loop.started:
        loop.start()
    while not loop.ended and (epochs is None or loop.epoch < epochs):
        loop.run_epoch()
    return loop

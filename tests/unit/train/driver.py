"""A training loop for tests, which can ask it for what belongs to its phase."""

import torch

from rayhier.train.loop import Loop


class Driver(Loop):
    def __getattr__(self, name):
        phase = self.__dict__["phase"]
        for part in (phase, phase.learner, getattr(phase, "pairs", None)):
            if hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(name)

    def restore_best(self):
        super().restore_best()
        self.phase.finish()


def run(loop, epochs=None):
    if not loop.started:
        loop.start()
    while not loop.ended and (epochs is None or loop.epoch < epochs):
        loop.run_epoch()
    return loop


def weights(loop):
    return {name: value.detach().clone() for name, value in loop.learned().items()}


def same(first, second):
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def ends_as_if_it_had_not_been_cut_off(build, stop, path):
    """Train to the end, and again with a stop after some epochs, from a checkpoint; returns the first training."""
    whole = run(build())
    run(build(), stop).save(path)
    resumed = build()
    resumed.load(path)
    assert resumed.epoch == stop
    torch.rand(3)
    run(resumed)
    assert resumed.history == whole.history
    assert same(weights(resumed), weights(whole))
    for loop in (resumed, whole):
        loop.restore_best()
    assert same(weights(resumed), weights(whole))
    assert same(resumed.learner.kept, whole.learner.kept)
    return whole

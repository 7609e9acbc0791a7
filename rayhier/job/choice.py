"""Choose if a job runs in this process or on Ray. With equal workers and CPUs, the results are the same."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from rayhier.executor import cluster
from rayhier.job import rates
from rayhier.job.hours import stage_cost
from rayhier.job.memory import stage_memory
from rayhier.job.plan import Plan, Step
from rayhier.job.stages import STAGES
from rayhier.spec import JobSpec

SECONDS = 1_800.0
"""Estimated seconds of work above which a job starts Ray. Ray's processes take about a minute to start."""
SHARE = 0.5
"""Share of this machine's memory. If a stage needs more, the job starts Ray, whose processes give memory back."""


@dataclass(frozen=True)
class Choice:
    on_ray: bool
    why: str

    def __str__(self) -> str:
        return f"{'on Ray' if self.on_ray else 'in this process'}: {self.why}"


def choose(plan: Plan, to_make: Sequence[Step]) -> Choice:
    """Choose one process or Ray, by the spec's address, a running cluster, and GPUs, memory and hours of the steps."""
    spec = plan.spec
    if spec.cluster.address != "auto":
        return Choice(True, f"cluster.address is {spec.cluster.address}")
    if (running := cluster.running()) is not None:
        return Choice(True, running)
    for name in dict.fromkeys(STAGES[step.stage].workers for step in to_make):
        if getattr(spec.cluster, name).gpus:
            return Choice(True, f"cluster.{name} has GPUs")
    return _by_size(plan, to_make)


def _by_size(plan: Plan, to_make: Sequence[Step]) -> Choice:
    spec, has = plan.spec, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    known, seconds = rates.load(), 0.0
    for step in to_make:
        needed = stage_memory(step.stage, spec, plan.work)
        if needed > SHARE * has:
            return _here_if_small(
                spec, f"{step.stage} needs about {needed / 1e9:.0f} GB of this machine's {has / 1e9:.0f} GB"
            )
        cost = stage_cost(step.stage, spec, plan.work, known)
        seconds += cost.amount / ((cost.rate or math.inf) * cost.devices)  # a stage with a GPU has chosen Ray above
    if seconds > SECONDS:
        return _here_if_small(spec, f"about {seconds / 3600:.1f} h of work")
    return Choice(False, f"about {seconds:.0f} s of work")


def _here_if_small(spec: JobSpec, why: str) -> Choice:
    """Choose Ray, unless Ray would refuse the spec because a stage has more CPUs than the machine has cores."""
    cores = os.cpu_count() or 1
    for name in dict.fromkeys(stage.workers for stage in STAGES.values()):
        workers = getattr(spec.cluster, name)
        if workers.workers * workers.cpus > cores:
            return Choice(False, f"{why}, but cluster.{name} has more CPUs than this machine's {cores} cores")
    return Choice(True, why)

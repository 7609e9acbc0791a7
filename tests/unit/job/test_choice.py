"""Where a job runs: in this process unless an address, a cluster, GPUs, memory or hours speak for Ray."""

import pytest

from rayhier.executor import cluster
from rayhier.executor.here import Here
from rayhier.job import choice
from rayhier.job.choice import choose
from rayhier.job.outline import show
from rayhier.job.plan import make_plan
from rayhier.job.run import open_executor
from rayhier.spec import InputError, load


@pytest.fixture
def chosen(tiny_spec, monkeypatch):
    """`chosen("KEY=VALUE", …)`: the choice for the tiny spec, where no cluster runs."""
    monkeypatch.setattr(cluster, "noted", lambda: False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.delenv(cluster.ADDRESS, raising=False)

    def choice_of(*overrides):
        plan = make_plan(load(tiny_spec(), overrides))
        return choose(plan, plan.steps)

    return choice_of


def test_a_small_job_is_done_in_this_process(chosen, tiny_spec):
    assert isinstance(open_executor(chosen(), load(tiny_spec())), Here)
    assert f"runs {chosen()}" in show(make_plan(load(tiny_spec()))).splitlines()


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("cluster.address=local", "on Ray: cluster.address is local"),
        ("cluster.address=127.0.0.1:6379", "on Ray: cluster.address is 127.0.0.1:6379"),
        ("cluster.index.gpus=0.5", "on Ray: cluster.index has GPUs"),
        ("cluster={corpus: {workers: 900}, embed: {workers: 900}}", "in this process"),
        ("cluster.train={workers: 2, least_workers: 1}", "in this process"),
    ],
)
def test_what_a_spec_says_for_ray_and_what_does_not(chosen, override, why):
    assert str(chosen(override)).startswith(why)


def test_a_cluster_is_used_where_one_is_known(chosen, tiny_spec, monkeypatch):
    monkeypatch.setattr(cluster, "noted", lambda: True)
    assert str(chosen()) == "on Ray: a cluster runs on this machine"
    monkeypatch.setenv(cluster.ADDRESS, "127.0.0.1:1")
    assert str(chosen()) == "on Ray: RAY_ADDRESS is 127.0.0.1:1"
    with pytest.raises(InputError, match=r"^RAY_ADDRESS: got '127.0.0.1:1', but nothing answers there"):
        open_executor(chosen(), load(tiny_spec()))


def test_hours_and_memory_speak_for_ray_if_it_would_not_refuse_the_workers(chosen, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(choice, "SECONDS", 0.01)
        assert chosen().on_ray
        assert not chosen("cluster.embed.workers=9999").on_ray
    monkeypatch.setattr(choice, "SHARE", 1e-9)
    assert chosen().why.startswith("train needs about ")


def test_only_steps_that_are_made_count(chosen, tiny_spec, monkeypatch):
    monkeypatch.setattr(choice, "SECONDS", 0.01)
    plan = make_plan(load(tiny_spec(cluster="{corpus: {workers: 1}, index: {gpus: 1}}")))
    assert not choose(plan, []).on_ray
    assert choose(plan, plan.steps[:1]).why.endswith("of work")

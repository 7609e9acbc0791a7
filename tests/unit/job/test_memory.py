"""What serving takes, against numbers worked out by hand, and what grows with what."""

from dataclasses import replace
from functools import partial

import pytest

from rayhier.job.memory import COUNTED, PROCESS, SCANNED, SCANNING, SCANNING_PROCESS, deployments, held
from rayhier.job.plan import make_plan
from rayhier.spec import load
from rayhier.spec.index_size import ROW, SECOND

from .test_hours import SCIFACT

MILLIONS = replace(SCIFACT, documents=10_000_000)
WEIGHTS, READER = 90e6, 120e6


@pytest.fixture
def spec(tiny_spec):
    """`spec("KEY=VALUE", …)` over the tiny one."""
    return lambda *overrides: load(tiny_spec(cluster="{}", train="{}"), overrides)


def test_a_groups_memory_is_its_share_of_codes(spec):
    spec = partial(spec, "index.words=false")
    one = spec("index.leaves_per_document=1")
    assert held(one, MILLIONS) == 10_000_000 * (384 / 4 + ROW)
    ingress, group = deployments(one, MILLIONS, WEIGHTS, READER)
    assert group.memory == SCANNING_PROCESS + held(one, MILLIONS) / 2
    assert ingress.memory >= PROCESS + WEIGHTS


def test_words_and_second_leaves_take_memory_too(spec):
    one = held(spec("index.leaves_per_document=1", "index.words=false"), MILLIONS)
    second = spec("index.leaves_per_document=2", "index.words=false")
    rows = MILLIONS.documents * second.rows_per_document
    assert held(second, MILLIONS) == pytest.approx(second.rows_per_document * one + SECOND * rows)
    assert second.rows_per_document > 1
    worded = held(spec("index.leaves_per_document=1", "index.words=true"), MILLIONS)
    assert worded == one + MILLIONS.documents * COUNTED


def test_a_group_answers_less_the_more_leaves_a_question_visits(spec):
    few, many, every = (deployments(spec(f"search.beam={beam}"), MILLIONS, 0, 0)[1].rate for beam in (1, 2, 100_000))
    assert few > many > every
    rows = 10_000_000 * spec().rows_per_document
    assert every == pytest.approx(1 / (SCANNING + rows * 384 / 2 / SCANNED))


def test_the_plan_says_what_serving_takes(tiny_spec, capsys):
    from rayhier import run

    path = tiny_spec(search="{k: 10}")
    assert run.main([str(path), "--plan"]) == 0
    shown = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(shown) if line.startswith("serving, a core a replica"))
    assert shown[start + 1].split()[0] == "ingress"
    assert shown[start + 2].startswith("  shards-0 … 1")
    assert shown[start + 3].startswith("to do")
    found = deployments(load(path), make_plan(load(path)).work, 0, 0)
    assert shown[start + 1].endswith(f"{found[0].replicas()} replicas")

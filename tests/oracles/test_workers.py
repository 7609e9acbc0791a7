"""Several workers' gradient is one worker's on the joined batch, by real processes that talk over gloo."""

import multiprocessing
import os
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from rayhier.dataset.documents import Documents
from rayhier.dataset.queries import Queries
from rayhier.dataset.spans import Spans
from rayhier.model.cross_encoder import load_cross_encoder
from rayhier.model.encoder import ResidualHead
from rayhier.model.retreever import LearnedPropagation, NodeTree, Splits, TreeLevels
from rayhier.spec.cross_encoder import CrossEncoderSpec
from rayhier.spec.train import HceTraining, RetreeverTraining
from rayhier.train.contrast import Contrast
from rayhier.train.cross_encoder import phase as reading_phase
from rayhier.train.cross_encoder.groups import TrainingGroups
from rayhier.train.dev_measures import DevMeasured
from rayhier.train.ehi import Joint
from rayhier.train.examples import Examples
from rayhier.train.hce import Hce
from rayhier.train.learned_ivf.router_phase import build_router_phase
from rayhier.train.loop import Loop
from rayhier.train.pseudo import StoredPairs
from rayhier.train.retreever.dev import SizesMeasure
from rayhier.train.retreever.grow import start_at_random
from rayhier.train.retreever.matching import MatchingPhase
from rayhier.train.tower import HeadTower

from ..draws import unit
from ..toys import job, tiny_bert

ROWS = 13
LAST = np.array([*range(ROWS - 3), 40, 41, 42])
"""Pairs of a batch that ends with second answers of its first queries."""
TIMEOUT = 5
"""Seconds after which a collective call of training's steps is ended."""
SHARED = {"epochs": 3, "batch_size": ROWS}
MINES = ("joint", "contrast", "hce", "paper")
"""Trainings that mine hard negatives."""
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["rayhier", "torch._dynamo", __name__])
"""What each worker would import for seconds is imported once, by the process that they are forks of."""


def problem():
    documents = unit(0, 60, 8)
    queries = documents[:40] + np.random.default_rng(1).normal(scale=0.3, size=(40, 8)).astype(np.float32)
    pairs = np.array([*((n, n) for n in range(40)), *((n, n + 1) for n in range(0, 40, 3))])
    return Examples(queries, documents, pairs)


def tower(examples, micro_batch=None):
    stored = {"query": examples.query_QM, "document": examples.document_NM, "dev": examples.query_QM[:5]}
    stored["pseudo"] = examples.query_QM[::2]
    made = HeadTower(ResidualHead(8), stored, torch.device("cpu"))
    made.micro_batch = micro_batch
    return made


def spec(**router):
    return job(router=router, train={"epochs": 2, "batch_size": ROWS, "encoder_lr": 0.02})


def one_query(value):
    return DevMeasured({"R@100": value}, np.array([value]))


def first_number(documents, _):
    return one_query(float(documents[0, 0]))


def first_size(now):
    return one_query(float(now.sizes[0]))


def begin(phase):
    loop = Loop(phase)
    loop.start()
    return loop


def joint(micro_batch):
    """EHI's trainer; hard negatives in the first batch."""
    examples, asked = problem(), spec(type="ehi", branching=3, height=2)
    made = Joint(tower(examples, micro_batch), examples, asked.router, asked.train, 0, first_size)
    loop = begin(made)
    made.pairs.mine(made.search())
    made.step(np.arange(ROWS), np.where(np.arange(ROWS) < 4, made.pairs.mined[:ROWS, 0], -1))
    return loop


def contrast(micro_batch):
    examples = problem()
    asked = spec(type="learned_ivf", branching=9)
    made = Contrast(tower(examples, micro_batch), examples, None, asked.train, 0, first_number)
    loop = begin(made)
    made.pairs.mine(made.search())
    made.take([made.batch(LAST, made.pairs.mined[LAST[:4], 0]), *made.anchors(5, np.random.default_rng(0))])
    return loop


def tree(micro_batch, settings):
    examples = problem()
    spec = HceTraining.model_validate({"type": "hce", **SHARED, "encoder_lr": 0.02, "siblings": 3, **settings})
    spans = Spans(examples.query_QM[::2], np.arange(0, 40, 2), pa.chunked_array([[""] * 20]))
    made = Hce(tower(examples, micro_batch), examples, StoredPairs(spans), spec, 0, first_number)
    loop = begin(made)
    if spec.hard_negatives.source != "none":
        made.pairs.mine(made.search())
    next(made.steps(0))
    made.step(LAST, np.random.default_rng(0))
    return loop


def taught(micro_batch):
    """The router after a contrast of two epochs; every worker has its own draws."""
    examples, asked = problem(), spec(type="learned_ivf", branching=9)
    before = Contrast(tower(examples, micro_batch), examples, None, asked.train, 0, first_number)
    first = begin(before)
    while not first.ended:
        first.run_epoch()
    first.restore_best()
    made = build_router_phase(asked, asked.router, before, examples, np.stack([np.arange(5)] * 2, axis=1))
    loop = begin(made)
    made.step(np.arange(ROWS))
    return loop


def late(micro_batch):
    """Like `joint`, but the first worker's mining and its measurement of dev take longer than the timeout."""
    examples, asked = problem(), spec(type="ehi", branching=3, height=2)
    is_late = dist.is_initialized() and dist.get_rank() == 0

    def measure(now):
        time.sleep(2 * TIMEOUT * is_late)
        return first_size(now)

    made = Joint(tower(examples, micro_batch), examples, asked.router, asked.train, 0, measure)
    search = made.search

    def late_search():
        best = search()
        return lambda part, k: (time.sleep(1.6 * TIMEOUT * is_late), best(part, k))[1]

    made.search = late_search
    made.epochs = 1
    loop = begin(made)
    made.step(np.arange(ROWS), np.full(ROWS, -1))
    return loop


def levels(_, settings, learned):
    examples = problem()
    spec = RetreeverTraining.model_validate({"type": "retreever", **SHARED, "router_lr": 0.05, **settings})
    splits = Splits(8, 3)
    start_at_random(splits, examples.document_NM, 0)
    documents = Documents([f"d{n}" for n in range(60)], examples.document_NM)
    dev = Queries([f"q{n}" for n in range(5)], examples.query_QM[:5], {f"q{n}": {f"d{n}": 1} for n in range(5)})
    propagation = LearnedPropagation(3, dropout=0.0) if learned else None
    made = TreeLevels(NodeTree(splits, propagation), spec.similarity)
    phase = MatchingPhase(made, tower(examples), examples, spec, 0, SizesMeasure(dev, documents))
    loop = begin(phase)
    phase.step(LAST, 0.0, 0.9)
    return loop


def reading(_):
    """A cross-encoder on groups; without dropout, which every worker draws for itself."""
    model = load_cross_encoder(Path("bert"), "cls", seed=0)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for name, parameter in model.named_parameters():
        # Their gradients are zero but for rounding, of which AdamW makes whole steps.
        parameter.requires_grad_(not name.endswith(("key.bias", "classifier.bias", "scale")))
    examples = replace(problem(), query_texts=[f"w{n}" for n in range(40)])
    reading_phase.BATCH = ROWS
    groups = TrainingGroups(examples, [f"w{n} w{(n + 1) % 60}" for n in range(60)])
    spec = CrossEncoderSpec(model="none", max_length=8, train={"epochs": 2})

    def measure(now):
        return {"dev": float(now.transformer.classifier.weight[0, 0].detach())}

    made = reading_phase.Reading(model, groups, spec, 2, measure)
    loop = begin(made)
    made._step(np.arange(30, 30 + ROWS), [0, 0, 0], 0.1)
    return loop


PAPER = {"form": "paper", "hard_negatives": {"source": "none"}, "tree": {"branching": 4, "levels": 1}}
KINDS = {
    "joint": joint,
    "contrast": contrast,
    "hce": partial(tree, settings={"tree": {"branching": 3, "levels": 2, "recluster": "every"}}),
    "paper": partial(tree, settings=PAPER),
    "variation": partial(levels, settings={"similarity": "tv", "schedule": "matryoshka"}, learned=True),
    "cosine": partial(levels, settings={"similarity": "cosine", "schedule": "stochastic"}, learned=False),
    "reading": reading,
    "router_phase": taught,
    "late": late,
}


def worker(kind, rank, size, folder, micro_batch):
    """Train a little, and leave the first batch's gradients, every loss and the weights behind."""
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    torch.manual_seed(rank)
    os.chdir(folder)
    if size > 1:
        seconds = timedelta(seconds=TIMEOUT if kind == "late" else 300)
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size, timeout=seconds
        )
    loop = KINDS[kind](micro_batch)
    kept = {f"gradient.{n}": p.grad.clone() for n, p in enumerate(loop.learner.parameters)}
    while not loop.ended:
        loop.run_epoch()
    kept |= {name: value.clone() for name, value in loop.learner.kept.items()}
    kept |= {name: value.detach().clone() for name, value in loop.learner.learned().items()}
    loop.restore_best()
    loop.phase.finish()
    kept |= {f"best.{name}": value.detach().clone() for name, value in loop.learner.learned().items()}
    if hasattr(loop.phase, "router"):
        kept |= {f"buffer.{name}": value.clone() for name, value in loop.phase.router.named_buffers()}
    if rank == 0:
        for name in ("dev", "loss_total"):
            kept[f"history.{name}"] = torch.tensor([row.get(name, 0.0) for row in loop.history])
    save_file({name: value.contiguous() for name, value in kept.items()}, f"{folder}/{rank}.safetensors")
    if size > 1:
        dist.barrier()
        os._exit(0)


def run(kind, folder, size, micro_batch=None):
    tiny_bert(folder / "bert", [f"w{n}" for n in range(60)])
    given = [(kind, rank, size, str(folder), micro_batch) for rank in range(size)]
    started = [FORKED.Process(target=worker, args=own, daemon=True) for own in given]
    for process in started:
        process.start()
    for process in started:
        process.join(timeout=200)
    assert [process.exitcode for process in started] == [0] * size
    return [load_file(folder / f"{rank}.safetensors") for rank in range(size)]


def test_long_work_of_one_worker_does_not_end_the_others(tmp_path):
    assert len(run("late", tmp_path, 2)) == 2


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"late"}))
def test_three_workers_with_micro_batches_are_one_without(kind, tmp_path):
    (one,) = run(kind, tmp_path / "alone", 1)
    together = run(kind, tmp_path / "together", 3, micro_batch=2)
    for name, wanted in one.items():
        if name.startswith("gradient.") and kind not in ("router_phase", "variation", "reading"):
            assert wanted.abs().max() > 0
        if not name.startswith("history."):
            for found in together:
                # Of gradients that are zero but for rounding AdamW makes steps, each as long as the rate.
                loose = 1e-4 if kind == "reading" and not name.startswith("gradient.") else 1e-5
                torch.testing.assert_close(found[name], wanted, atol=loose, rtol=1e-5)
    for name in ("history.dev", "history.loss_total"):
        if name == "history.loss_total" or kind != "router_phase":  # what they visit moves in steps
            assert len(set(one[name].tolist())) > 1
        torch.testing.assert_close(together[0][name], one[name], atol=1e-5, rtol=1e-5)
    assert {name.partition(".")[0] for name in one} >= {"gradient", "best", "history"}
    assert ("mined" in one) == (kind in MINES)

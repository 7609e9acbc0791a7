"""Several workers' gradient is one worker's on the joined batch, by real processes that talk over gloo."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

ROWS, STEPS = 13, 3


def worker(rank: int, size: int, folder: str, micro_batch: int | None) -> None:
    """Train a little, and leave the first batch's gradients, every loss and the weights behind."""
    import numpy as np
    import torch.distributed as dist
    from safetensors.torch import save_file

    from rayhier.model.encoder import ResidualHead
    from rayhier.spec.router import EhiSpec
    from rayhier.spec.train import TrainSpec
    from rayhier.train.examples import Examples
    from rayhier.train.tower import HeadTower
    from rayhier.train.trainer import Trainer

    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(60, 8)).astype(np.float32)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    queries = documents[:40] + rng.normal(scale=0.3, size=(40, 8)).astype(np.float32)
    pairs = np.array([*((n, n) for n in range(40)), *((n, n + 1) for n in range(0, 40, 3))])
    stored = {"query": queries, "document": documents, "dev": queries[:5]}
    tower = HeadTower(ResidualHead(8), stored, torch.device("cpu"))
    spec = TrainSpec(epochs=2, batch_size=ROWS, micro_batch=micro_batch, encoder_lr=0.02)
    router = EhiSpec(type="ehi", branching=3, height=2)
    trainer = Trainer(
        tower, Examples(queries, documents, pairs), router, spec, 0, lambda now: {"dev": float(now.lists.sizes[0])}
    )
    trainer.start()
    trainer._mine()
    trainer._step(np.arange(ROWS), np.where(np.arange(ROWS) < 4, trainer.mined[:ROWS, 0], -1))
    kept = {f"gradient.{n}": p.grad.clone() for n, p in enumerate(trainer.parameters)}
    while not trainer.finished:
        trainer.run_epoch()
    kept |= {name: value.detach().clone() for name, value in trainer._learned().items()}
    kept |= {f"mined.{rank}": torch.from_numpy(trainer.mined).clone()}
    if rank == 0:
        kept |= {"history": torch.tensor([row.get("loss_total", 0.0) for row in trainer.history])}
    save_file({name: value.contiguous() for name, value in kept.items()}, f"{folder}/{rank}.safetensors")
    if size > 1:
        dist.barrier()
        os._exit(0)


def run(folder: Path, size: int, micro_batch: int | None = None) -> list[dict[str, torch.Tensor]]:
    """What every worker left behind."""
    folder.mkdir()
    code = "import sys; sys.path.insert(0, sys.argv[1]); import rayhier, test_workers as t; t.worker(int(sys.argv[2]), "
    code += "int(sys.argv[3]), sys.argv[4], int(sys.argv[5]) or None)"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    commands = [
        [
            sys.executable,
            "-c",
            code,
            str(Path(__file__).parent),
            str(rank),
            str(size),
            str(folder),
            str(micro_batch or 0),
        ]
        for rank in range(size)
    ]
    started = [subprocess.Popen(command, env=environment) for command in commands]
    assert [process.wait(timeout=200) for process in started] == [0] * size
    return [load_file(folder / f"{rank}.safetensors") for rank in range(size)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(tmp_path_factory.mktemp("workers") / "alone", 1)[0]


@pytest.mark.parametrize(("size", "micro_batch"), [(2, None), (3, 2)])
def test_workers_together_are_one(alone, tmp_path, size, micro_batch):
    together = run(tmp_path / "together", size, micro_batch)
    for rank, found in enumerate(together):
        assert torch.equal(found[f"mined.{rank}"], alone["mined.0"])
        for name, wanted in alone.items():
            if name.startswith("gradient."):
                assert wanted.abs().max() > 0
            if name in found:
                torch.testing.assert_close(found[name], wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together[0]["history"], alone["history"], atol=1e-5, rtol=1e-5)
    assert {name for name in alone if name.startswith(("gradient.", "encoder.", "router."))} <= together[-1].keys()

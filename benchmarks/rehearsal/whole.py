"""Run the whole size of MS MARCO once, stage by stage: 8,841,823 passages, of which an encoder reads 1%.

The vectors of the other passages are means of their words' vectors, which are close to the encoder's vectors. Each
stage is a process. The table has its time and its largest memory, next to the plan.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.collection import ROOT
from benchmarks.commands import Options, clock
from benchmarks.machine import watching
from benchmarks.rehearsal import encoder, passages
from benchmarks.rehearsal.__main__ import SPEC, UNITS, WITHIN, flow, output
from benchmarks.rehearsal.job import STAGES
from benchmarks.tables import table, verdict
from rayhier.embed import encode
from rayhier.embed.batches import Tokens, batches
from rayhier.evaluate.report import Report
from rayhier.model.encoded import Reader
from rayhier.run import main as run

DIMENSION, ENCODED, MOST_BYTES = 64, 100, 4e9
"""Size of vectors, batches of which the transformer encodes one, and most bytes of a process."""
QUERIES = 1_000
ESTIMATE = re.compile(rf"^  ({'|'.join(STAGES)})(?: seed 0)? .*estimated +([\d.,]+) (s|min|h)$", re.MULTILINE)
CHILD = "RAYHIER_WHOLE"


def main() -> int:
    parser = Options("Run the whole size of MS MARCO once.", "whole")
    parser.add_argument("--share", type=float, default=1.0, help="share of MS MARCO's passages and queries (default 1)")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="stages to run (default all)")
    given = parser.parse_args()
    size = replace(passages.Size.of(given.share), test=QUERIES)
    tell, data = clock(), given.workdir / f"data-{given.share:g}"
    workdir = given.workdir / f"run-{given.share:g}"
    if len(given.stages) == len(STAGES):
        shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True, exist_ok=True)
    if not data.exists():
        tell(f"making {size.passages:,} passages")
        passages.write(data / "msmarco", size)
        encoder.write(data / "encoder", passages.vocabulary(), DIMENSION)
    sets = overrides(data, workdir)
    planned = output("rayhier.run", SPEC, "--plan", *sets)
    estimates = {stage: float(n.replace(",", "")) * UNITS[unit] for stage, n, unit in ESTIMATE.findall(planned)}
    rows, met = [], True
    for stage in given.stages:
        seconds, memory = one(stage, sets)
        within = 1 / WITHIN <= seconds / estimates[stage] <= WITHIN
        met &= within and memory <= MOST_BYTES
        rows.append([stage, f"{estimates[stage]:,.0f} s", f"{seconds:,.0f} s", verdict(within), f"{memory / 1e9:.2f}"])
        tell(" | ".join(rows[-1]))
    report = Report.read(workdir / "report.json")
    measured = [
        [name, f"{row.measures['RR@10']:.3f}", f"{row.measures['R@100']:.3f}", f"{row.visited:.2%}"]
        for name, row in report.systems.items()
    ]
    head = ["stage", "plan", "took", "within twice", "own memory of the process, GB"]
    lines = [*table(head, rows), "", *table(["system", "RR@10", "R@100", "visited"], measured)]
    print("\n".join(lines))
    return 0 if met else 1


def overrides(data: Path, workdir: Path) -> list[str]:
    sections: dict[str, object] = {
        "workdir": str(workdir),
        "corpus.path": str(data / "msmarco"),
        "encoder": {"model": str(data / "encoder"), "max_length": 32, "train": "last_layer"},
        "train.epochs": "1",
        "train.encoder_lr": "1e-5",
        "evaluate.baselines": ["exact", "exact_same_encoder", "faiss_ivf_same_encoder"],
        "cluster": {stage: {"workers": 1, "cpus": 2} for stage in ("corpus", "embed", "train", "index", "evaluate")},
        "cluster.train.micro_batch": 256,  # as in the spec
    }
    return [part for key, value in sections.items() for part in ("--set", f"{key}={flow(value)}")]


def one(stage: str, sets: Sequence[str]) -> tuple[float, int]:
    """Run a stage in a process. Returns its seconds, and the most memory that the system could not take back."""
    command = [sys.executable, "-m", "benchmarks.rehearsal.whole", SPEC, "--stage", stage, *sets]
    process, largest = subprocess.Popen(command, cwd=ROOT, env=os.environ | {CHILD: "1"}, stdout=sys.stderr), 0

    def look() -> None:
        nonlocal largest
        largest = max(largest, own_memory(process.pid))

    began = time.monotonic()
    with watching(look):
        if process.wait() != 0:
            sys.exit(f"stage {stage}: exit code {process.returncode}")
    return time.monotonic() - began, largest


def own_memory(pid: int) -> int:
    """Return the bytes of a process without mapped files. The system can take back the memory of mapped files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def generated(self: encode.TextEncoder, tokens: Tokens, reader: Reader | None = None, begin: int = 0) -> Iterator[Any]:
    """Encode one of ENCODED batches by the transformer. Other vectors are means of word vectors."""
    with torch.inference_mode():
        table_VM = self.encoder.transformer.embeddings.word_embeddings.weight.float()
        for rows in batches(tokens, (4_096, 1 << 20), begin):
            some = [tokens[row] for row in rows]
            if next(counted) % ENCODED == 0:
                yield from ((rows[part], *rest) for part, *rest in encoded(self, some, reader))
                continue
            ids = torch.from_numpy(np.concatenate([np.asarray(each, np.int64)[1:-1] for each in some]))
            ends = np.cumsum([0, *(len(each) - 2 for each in some[:-1])])
            self.seen += sum(map(len, some))
            yield rows, F.normalize(F.embedding_bag(ids, table_VM, torch.from_numpy(ends), mode="mean"), dim=1)


encoded, counted = encode.TextEncoder.batches, itertools.count()


if __name__ == "__main__":
    if CHILD in os.environ:
        encode.TextEncoder.batches = generated  # type: ignore[method-assign]
        sys.exit(run(sys.argv[1:]))
    sys.exit(main())

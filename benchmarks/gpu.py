"""Measure a GPU's work in a large job: nearest neighbours, k-means, encoding, an epoch of EHI and exact search.

Ray is not needed. Rates go to docs/results/scale.md. On a CPU, `--share` makes all sizes smaller.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import DistilBertConfig, DistilBertModel

from benchmarks.commands import Options
from benchmarks.rehearsal import encoder, passages
from benchmarks.tables import table
from rayhier.arrays import Floats
from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.cluster.neighbours import faiss_on_gpu, nearest
from rayhier.dataset.queries import Queries
from rayhier.embed.encode import TextEncoder
from rayhier.model.device import gpu
from rayhier.model.encoder import ResidualHead
from rayhier.search.segment.exact import exact_rows
from rayhier.spec.encoder import EncoderSpec
from rayhier.spec.router import EhiRouting
from rayhier.spec.train import EhiTraining
from rayhier.train.ehi import DevMeasure, Joint
from rayhier.train.examples import Examples
from rayhier.train.tower import HeadTower

QUERIES, ROWS, LEAVES, M, TOP = 480_000, 1_000_000, 12_000, 768, 20
TEXTS, WORDS = 50_000, 73
"""Texts to encode, and their words: 75 tokens with those at both ends."""


def main() -> None:
    parser = Options("Measure a GPU's work in a large job.")
    parser.add_argument("--share", type=float, default=1.0, help="share of all sizes (default 1)")
    share = parser.parse_args().share
    q, n, leaves, texts = (max(64, round(share * size)) for size in (QUERIES, ROWS, LEAVES, TEXTS))
    vector_NM, rows = unit(0, n), []

    def timed(name: str, work: Callable[[], object], rate: Callable[[float], str]) -> None:
        work()  # the first call loads libraries
        began = time.perf_counter()
        work()
        if gpu() is not None:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        rows.append([name, f"{seconds:.2f} s", rate(seconds)])
        print(rows[-1], flush=True)

    query_QM = unit(1, q)
    products = 2.0 * q * n * M
    timed(f"nearest {TOP} of {n:,} for {q:,}", lambda: nearest(query_QM, vector_NM, TOP), tera(products))
    timed(f"k-means, {leaves:,} of {n:,}", lambda: spherical_kmeans(vector_NM, leaves, 0), tera(50.0 * n * leaves * M))
    exact_QM = query_QM[: max(64, round(share * 6_980))]
    timed(
        "exact search of evaluation, best 1,000", lambda: exact_rows(exact_QM, vector_NM, None, 1_000), each(exact_QM)
    )
    for precision in ("bfloat16", "float32"):
        with tempfile.TemporaryDirectory() as folder:
            made = distilbert(Path(folder) / "encoder", precision)
            words = passages.vocabulary()
            draws = np.random.default_rng(0).integers(0, len(words), (texts, WORDS)).tolist()
            read = [" ".join(words[word] for word in row) for row in draws]
            speed = tera(2.0 * made.parameters * texts * (WORDS + 2))
            timed(f"encode {texts:,} texts in {precision}", partial(made.encode, read), speed)
    timed("an epoch of EHI, head on vectors", epoch(unit(2, max(64, n // 20)), unit(3, max(64, q // 20))), lambda _: "")
    print(f"\nfaiss on the GPU: {faiss_on_gpu()}, device: {gpu() or 'CPU'}\n")
    print("\n".join(table(["work", "time", "rate"], rows)))


def unit(seed: int, count: int) -> Floats:
    vectors = np.random.default_rng(seed).normal(size=(count, M)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def tera(operations: float) -> Callable[[float], str]:
    return lambda seconds: f"{operations / seconds / 1e12:.1f} TFLOP/s"


def each(queries: Floats) -> Callable[[float], str]:
    return lambda seconds: f"{len(queries) / seconds:,.0f} queries/s"


def distilbert(folder: Path, precision: str) -> TextEncoder:
    """An encoder of DistilBERT's size, with random weights."""
    encoder.write(folder, passages.vocabulary(), M)
    config = DistilBertConfig(vocab_size=len(passages.vocabulary()) + len(encoder.SPECIAL))
    DistilBertModel(config).save_pretrained(folder, safe_serialization=True)
    return TextEncoder(folder, EncoderSpec(model=str(folder), max_length=128, precision=precision))


def epoch(document_NM: Floats, query_QM: Floats) -> Callable[[], object]:
    """An epoch of EHI's training of a head and 7,000 leaves, with mining and a measurement on 64 queries."""
    pair_P2 = np.stack([np.arange(len(query_QM)), np.arange(len(query_QM)) % len(document_NM)], axis=1)
    examples, names = Examples(query_QM, document_NM, pair_P2), [f"d{row}" for row in range(len(document_NM))]
    dev = Queries([f"q{row}" for row in range(64)], query_QM[:64], {f"q{row}": {f"d{row}": 1} for row in range(64)})

    def run() -> None:
        stored = {"query": query_QM, "document": document_NM, "dev": dev.vector_QM}
        tower = HeadTower(ResidualHead(M), stored, torch.device(gpu() or "cpu"))  # type: ignore[arg-type]
        router = EhiRouting(type="ehi", branching=min(7_000, len(document_NM) // 8))
        phase = Joint(tower, examples, router, EhiTraining(type="ehi", epochs=1), 0, DevMeasure(dev, names))
        phase.run_pass(0)
        phase.measure()

    return run


if __name__ == "__main__":
    main()

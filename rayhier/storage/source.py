"""The source of a corpus as it lies on storage: which files, and what identifies their content."""

import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path

from rayhier.spec import InputError
from rayhier.spec.corpus import Beir, CorpusSpec, PythonDocs
from rayhier.storage import paths

SPLITS = ("train", "dev", "test")
CHUNK = 1 << 20
LAYOUT = "a BEIR folder (corpus.jsonl, queries.jsonl, qrels/{train,dev,test}.tsv)"


@dataclass(frozen=True)
class Source:
    """What `--plan` knows of a corpus before reading it."""

    identity: dict[str, str]
    """File name -> SHA-256, or what stands for the content."""
    documents: int | None
    """Upper bound on the documents; None where only reading tells."""
    bytes: int
    """Of everything that will be read."""
    judged: frozenset[str]
    """Splits that have judgements."""


def describe(spec: CorpusSpec) -> Source:
    """Look at the source a spec names; InputError where something is missing or empty."""
    match spec:
        case Beir():
            return _beir(paths.resolve("corpus.path", spec.path))
        case PythonDocs():
            return Source({"python": platform.python_version()}, None, 0, frozenset(SPLITS))


def _beir(folder: Path) -> Source:
    if not folder.is_dir():
        raise InputError(f"corpus.path: got {str(folder)!r}, no such folder; allowed: {LAYOUT}")
    judged = frozenset(split for split in SPLITS if (folder / "qrels" / f"{split}.tsv").is_file())
    names = ["corpus.jsonl", "queries.jsonl", *(f"qrels/{split}.tsv" for split in SPLITS if split in judged)]
    for name in names:
        if not (folder / name).is_file():
            raise InputError(f"corpus.path: {folder / name} is missing; allowed: {LAYOUT}")
    if not judged:
        raise InputError(f"corpus.path: {folder / 'qrels'} holds none of train.tsv, dev.tsv, test.tsv")
    identity = {}
    total = documents = 0
    for name in names:
        identity[name], size, rows = _scan(folder / name)
        total += size
        if name == "corpus.jsonl":
            documents = rows
    if documents == 0:
        raise InputError(f"corpus.path: {folder / 'corpus.jsonl'} is empty; allowed: one document a line")
    return Source(identity, documents, total, judged)


def _scan(path: Path) -> tuple[str, int, int]:
    """SHA-256, bytes and lines that are not blank, in one pass of bounded memory."""
    hashed = hashlib.sha256()
    size = rows = 0
    blank = True
    with path.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            hashed.update(chunk)
            size += len(chunk)
            first, *rest = chunk.split(b"\n")
            blank = blank and not first.strip()
            for piece in rest:
                rows += not blank
                blank = not piece.strip()
    rows += not blank
    return hashed.hexdigest(), size, rows

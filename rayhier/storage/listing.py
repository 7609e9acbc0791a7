"""Lists the files of a corpus, with the names that rejected rows and fingerprints use for these files."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from rayhier.spec import InputError
from rayhier.spec.corpus import Beir, FileCorpus, MsMarco, OwnFiles, TextFiles
from rayhier.storage import csv_rows, paths

SUFFIXES = (".txt", ".md", ".rst")
PARQUET = ".parquet"
Format = Literal["lines", "csv", "parquet", "text"]
"""Format of a file: one row per line, CSV, parquet, or a single text."""
FORMATS: dict[str, Format] = {".jsonl": "lines", ".json": "lines", ".csv": "csv", ".tsv": "csv", PARQUET: "parquet"}
"""Ending of a file of documents or queries -> its format. A `.tsv` file of judgements has lines."""
SPLITS = ("train", "dev", "test")
BEIR = "a BEIR folder (corpus.jsonl, queries.jsonl, qrels/{train,dev,test}.tsv)"
ALONE = "Documents alone are a corpus of type jsonl (see specs/my-folder.yaml)"
MSMARCO = "a folder with collection.tsv, queries.{train,dev}.tsv and qrels.{train,dev}.tsv, or dev.small for dev"


@dataclass(frozen=True)
class NamedFile:
    """A file of a corpus, with a name that is the same on every machine."""

    name: str
    path: Path
    format: Format = "lines"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class CorpusFiles:
    documents: tuple[NamedFile, ...]
    queries: tuple[NamedFile, ...]
    judgements: dict[str, NamedFile]
    """Split (train, dev or test) -> file of its judgements, for splits that have judgements."""

    @property
    def all(self) -> tuple[NamedFile, ...]:
        return (*self.documents, *self.queries, *self.judgements.values())


def judged_file(name: str, path: Path) -> NamedFile:
    suffix = path.suffix.lower()
    return NamedFile(name, path, "lines" if suffix == ".tsv" else FORMATS.get(suffix, "lines"))


def find(spec: FileCorpus) -> CorpusFiles:
    match spec:
        case Beir():
            return _beir(paths.resolve("corpus.path", spec.path))
        case MsMarco():
            return _msmarco(paths.resolve("corpus.path", spec.path))
        case OwnFiles():
            form: Format = "lines" if spec.type == "jsonl" else spec.type
            suffixes = csv_rows.SUFFIXES if spec.type == "csv" else (f".{spec.type}",)
            return _asked(spec, _files("documents", spec.documents, suffixes, lambda _: form))
        case TextFiles():
            return _asked(spec, _texts(spec))


def _texts(spec: TextFiles) -> tuple[NamedFile, ...]:
    """List the text files below a folder, sorted, with symbolic links, which are not followed."""
    folder = paths.resolve("corpus.path", spec.path)
    _check_folder(folder, "a folder of text files")
    files = list[NamedFile]()
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        linked = [name for name in folders if Path(place, name).is_symlink()]
        shown = [name for name in names if name.lower().endswith(SUFFIXES) and not name.startswith(".")]
        paths_ = (Path(place, name) for name in [*linked, *shown])
        regular = (path for path in paths_ if path.is_symlink() or path.is_file())  # a pipe never ends
        files += [NamedFile(path.relative_to(folder).as_posix(), path, "text") for path in regular]
    if all(file.path.is_symlink() for file in files):
        allowed = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        raise InputError(f"corpus.path: {folder} holds no {allowed}; allowed: a folder of such files")
    return tuple(sorted(files, key=lambda file: file.name))


def _unreadable(error: OSError) -> NoReturn:
    raise InputError(f"corpus.path: {error.filename} cannot be read: {error.strerror}; allowed: readable folders")


def _beir(folder: Path) -> CorpusFiles:
    _check_folder(folder, BEIR)
    corpus = _there(folder, "corpus.jsonl", BEIR)
    queries = _there(folder, "queries.jsonl", f"{BEIR}. {ALONE}")
    judged = {split: NamedFile(f"qrels/{split}.tsv", folder / "qrels" / f"{split}.tsv") for split in SPLITS}
    judged = {split: file for split, file in judged.items() if file.path.is_file()}
    if not judged:
        raise InputError(
            f"corpus.path: {folder / 'qrels'} holds none of train.tsv, dev.tsv, test.tsv; allowed: one of them. {ALONE}"
        )
    return CorpusFiles((corpus,), (queries,), judged)


def _msmarco(folder: Path) -> CorpusFiles:
    _check_folder(folder, MSMARCO)
    collection = _there(folder, "collection.tsv", MSMARCO)
    measured = "dev.small" if (folder / "qrels.dev.small.tsv").is_file() else "dev"
    published = {"train": "train", "test": measured}
    if (folder / "qrels.test.tsv").is_file():
        published = {"train": "train", "dev": measured, "test": "test"}
    published = {split: name for split, name in published.items() if (folder / f"qrels.{name}.tsv").is_file()}
    if not published:
        raise InputError(f"corpus.path: {folder} holds no qrels.train.tsv nor qrels.dev.tsv; allowed: {MSMARCO}")
    queries = tuple(_there(folder, f"queries.{name}.tsv", MSMARCO) for name in published.values())
    judged = {s: NamedFile(f"qrels.{name}.tsv", folder / f"qrels.{name}.tsv") for s, name in published.items()}
    return CorpusFiles((collection,), queries, judged)


def _there(folder: Path, name: str, allowed: str) -> NamedFile:
    if not (folder / name).is_file():
        raise InputError(f"corpus.path: {folder / name} is missing; allowed: {allowed}")
    return NamedFile(name, folder / name)


def _check_folder(folder: Path, allowed: str) -> None:
    if not folder.is_dir():
        raise InputError(f"corpus.path: got {str(folder)!r}, no such folder; allowed: {allowed}")


def _asked(spec: OwnFiles | TextFiles, documents: tuple[NamedFile, ...]) -> CorpusFiles:
    judged = {}
    for split in SPLITS:
        if (text := getattr(spec.judgements, split)) is not None:
            path = paths.resolve(key := f"corpus.judgements.{split}", text)
            if not path.is_file():
                raise InputError(f"{key}: got {text!r}, no such file; allowed: a file of judgements")
            judged[split] = judged_file(f"judgements/{split}/{path.name}", path)
    queries: tuple[NamedFile, ...] = ()
    if spec.queries is not None:
        own = documents[0].format if spec.type != "text" else "lines"
        found = _files("queries", spec.queries, tuple(FORMATS), lambda path: FORMATS.get(path.suffix.lower(), own))
        queries = tuple(file for file in found if file.path not in [judgements.path for judgements in judged.values()])
    asked = {file.path for file in (*queries, *judged.values())}
    if spec.type == "text":
        documents = tuple(file for file in documents if file.path not in asked)
    elif both := {file.path for file in documents} & asked:
        raise InputError(f"corpus.queries: {min(both)} is one of the documents too; allowed: other files")
    return CorpusFiles(documents, queries, judged)


def _files(key: str, text: str, suffixes: tuple[str, ...], form: Callable[[Path], Format]) -> tuple[NamedFile, ...]:
    """List a file, a folder's files that end in one of `suffixes`, or the files that a pattern matches, sorted."""
    path = paths.resolve(f"corpus.{key}", text)
    if path.is_file():
        return (NamedFile(f"{key}/{path.name}", path, form(path)),)
    if path.is_dir():
        entries = (entry for entry in path.iterdir() if entry.name.lower().endswith(suffixes))
    else:
        start = Path.cwd() if path.is_relative_to(Path.cwd()) else Path(path.anchor)  # its name may have a bracket
        entries = start.glob(str(path.relative_to(start)))
    matches = sorted(entry for entry in entries if entry.is_file())
    if not matches:
        wanted = " or ".join(f"*{suffix}" for suffix in suffixes)
        problem = f"holds no {wanted}" if path.is_dir() else "no such file or folder"
        allowed = f"a file, a folder of {wanted}, or a pattern of files"
        raise InputError(f"corpus.{key}: got {text!r}, {problem}; allowed: {allowed}")
    base = path if path.is_dir() else Path(os.path.commonpath([match.parent for match in matches]))
    return tuple(NamedFile(f"{key}/{match.relative_to(base).as_posix()}", match, form(match)) for match in matches)

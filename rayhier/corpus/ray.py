"""The corpus stage on Ray Data: a corpus file range by range; ids, queries and judgements on the driver."""

import sysconfig
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rayhier.corpus import beir, check, fits, ids, parts, python_docs, tables
from rayhier.corpus.beir import Range
from rayhier.corpus.check import Judgement
from rayhier.corpus.parts import Part
from rayhier.corpus.split import assign
from rayhier.corpus.tables import Found
from rayhier.progress import Bar, say
from rayhier.ray import stream
from rayhier.spec import JobSpec
from rayhier.spec.cluster import Workers
from rayhier.spec.corpus import Beir, Limits, PythonDocs
from rayhier.storage.attempt import Attempt, Made
from rayhier.storage.paths import Location, locate, resolve
from rayhier.storage.source import SPLITS

PART_DOCUMENTS = 1_000
"""Of python_docs, whose documents are read in seconds and split by number."""


class MakePart:
    """An actor that reads ranges of `source` and writes their parts below `root`."""

    def __init__(self, source: str, root: str, limits: dict[str, int]) -> None:
        self.source, self.root, self.limits = Path(source), locate(root), Limits(**limits)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Make the part of the range `row`; returns how many documents it holds."""
        span = Range(int(row["part"]), int(row["begin"]), int(row["end"]))
        return {"documents": parts.make(span, self.source, self.root, self.limits)}


def build(spec: JobSpec, attempt: Attempt) -> Made:
    """Read, check and write the corpus of a spec. InputError where the spec asks for what it does not hold."""
    match spec.corpus:
        case Beir():
            found = _beir(spec.corpus, spec.cluster.corpus, attempt.root)
        case PythonDocs():
            found = _python_docs(spec.corpus.limits, attempt.root)
    judgements = tables.splits(found.judgements)
    counts = found.counts | {"splits": tables.describe(judgements)}
    fits.check(spec, counts)
    for line in tables.lines(counts):
        say(line)
    return Made(counts, (*found.documents, *tables.write(attempt.root, found, judgements)))


def _beir(spec: Beir, workers: Workers, root: Location) -> Found:
    folder = resolve("corpus.path", spec.path)
    settled = parts.settle(root, _parts(folder / "corpus.jsonl", spec.limits, workers, root), "corpus.jsonl")
    queries = beir.entries(_lines(folder / "queries.jsonl"), lambda line: check.query(line, spec.limits))
    accepted = [one for _, one in queries.accepted]
    asked, known = {one.key for one in accepted}, ids.Known(settled.digests)
    judged = {split: beir.judgements(_lines(folder / "qrels" / f"{split}.tsv"), asked, known) for split in SPLITS}
    return Found(
        documents=settled.documents,
        queries=accepted,
        judgements={split: [one for _, one in parsed.accepted] for split, parsed in judged.items()},
        rejected=[
            *settled.rejected,
            tables.rejected(("queries.jsonl", *row) for row in queries.rejected),
            *(
                tables.rejected((f"qrels/{split}.tsv", *row) for row in parsed.rejected)
                for split, parsed in judged.items()
            ),
        ],
        counts={
            "documents": settled.counts(),
            "queries": tables.count_entries(queries.read, accepted, (reason for _, reason in queries.rejected)),
            "judgements": {
                split: tables.count(parsed.read, parsed.accepted, (reason for _, reason in parsed.rejected))
                for split, parsed in judged.items()
            },
        },
    )


def _parts(source: Path, limits: Limits, workers: Workers, root: Location) -> list[Part]:
    """The parts of all ranges of a file, those made by an earlier run included."""
    spans = beir.ranges(source.stat().st_size)
    missing = [span for span in spans if parts.finished(span, root) is None]
    arguments = {"source": str(source), "root": str(root), "limits": limits.model_dump()}
    documents = 0
    with Bar("corpus", len(spans), "parts") as bar:
        bar.advance(len(spans) - len(missing))
        for row in stream([asdict(span) for span in missing], MakePart, arguments, workers):
            documents += row["documents"]
            bar.advance(note=f"{documents:,} documents")
    made = [part for span in spans if (part := parts.finished(span, root)) is not None]
    if len(made) < len(spans):
        raise RuntimeError(f"{len(spans) - len(made)} of {len(spans)} parts did not reach {root}")
    return made


def _lines(path: Path) -> Iterator[bytes]:
    """Lines of a whole file; none of one that is not there."""
    if path.is_file():
        yield from beir.lines(path, 0, path.stat().st_size)


def _python_docs(limits: Limits, root: Location) -> Found:
    found = python_docs.pairs(Path(sysconfig.get_paths()["stdlib"]), limits)
    judgements: dict[str, list[Judgement]] = {split: [] for split in SPLITS}
    for one in found.judgements():
        judgements[assign(one.query_id)].append(one)
    return Found(
        documents=[
            parts.write_documents(root, number, found.documents[begin : begin + PART_DOCUMENTS])
            for number, begin in enumerate(range(0, len(found.documents), PART_DOCUMENTS))
        ],
        queries=found.queries,
        judgements=judgements,
        rejected=[tables.rejected(found.rejected)],
        counts={
            "documents": tables.count_entries(found.read, found.documents, (reason for *_, reason in found.rejected)),
            "queries": tables.count_entries(len(found.documents), found.queries, ()),
            "judgements": {split: tables.count(len(rows), rows, ()) for split, rows in judgements.items()},
        },
    )

"""The generate stage: reads a file of pairs in this process, or lets models on Ray write queries part by part."""

from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from rayhier.corpus import check, lines, tables
from rayhier.corpus.check import Pair, ParsedRows, Reason, Rejection, beginning, digest
from rayhier.corpus.ids import NO_DIGESTS, IdSet
from rayhier.corpus.parts import groups
from rayhier.corpus.rows import Rows, checked, collect
from rayhier.dataset.documents import document_texts
from rayhier.dataset.holdout import hash_ids
from rayhier.embed.encode import limit_threads
from rayhier.embed.ray import ledger_key
from rayhier.generate.generator import SEED, Generator
from rayhier.model.precision import best_device
from rayhier.progress import Bar, here, say
from rayhier.ray import stream
from rayhier.spec import InputError, JobSpec
from rayhier.spec.corpus import Limits
from rayhier.spec.train import PairFile, QueryModel
from rayhier.storage import columns, files, schemas
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import SCRATCH, Attempt, Output
from rayhier.storage.ledger import Ledger, LedgerEntry
from rayhier.storage.listing import NamedFile
from rayhier.storage.pair_source import ALLOWED, FILE, MODEL, PairSource
from rayhier.storage.paths import Location, locate

Source = tuple[str, ParsedRows[Pair]]

WRITTEN = pa.schema([("doc_id", pa.string()), ("query", pa.string())])
"""Columns of the queries that a model wrote for a part of the corpus; of a passage, `doc_id` is its document's id."""


class GeneratePart:
    """Writes queries for parts: it reads documents of `corpus` and writes files below `root`."""

    def __init__(
        self,
        model: str,
        spec: dict[str, Any],
        corpus: str,
        root: str,
        ledger: str,
        cpus: int,
        last: int | None,
    ) -> None:
        """Load the model. `last` is the largest hash of the documents to write queries for."""
        limit_threads(cpus)
        self.corpus, self.root = locate(corpus), locate(root)
        self.ledger = Ledger(locate(ledger), self.root)
        self.spec, self.last = QueryModel(**spec), last
        self.generator = Generator(Path(model), self.spec, best_device())

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        name = str(row["part"])
        path = self.corpus / name
        key = named_by(path)
        table = columns.read([path], list(dict.fromkeys(["doc_id", "title", "text", key])))
        drawn = table
        if self.last is not None:
            drawn = table.filter(pa.array(hashes(table["doc_id"].to_pylist()) <= self.last))
        queries = self.generator(drawn["doc_id"].to_pylist(), document_texts(drawn))
        ids = [name for name, texts in zip(drawn[key].to_pylist(), queries, strict=True) for _ in texts]
        written_pairs = pa.table([ids, [query for texts in queries for query in texts]], schema=WRITTEN)
        file = files.write_parquet(self.root, written(name), [written_pairs], WRITTEN)
        self.ledger.enter(ledger_key(name), LedgerEntry((file,), {"documents": len(table)}))
        return {"documents": len(table)}


def build(spec: JobSpec, source: PairSource, corpus: Artifact, attempt: Attempt) -> Output:
    """Read a file of pairs, or write queries for documents of `corpus`. InputError where no pair is accepted."""
    match spec.train.generation:
        case PairFile():
            sources = [read_file(source.path, corpus, spec.corpus.limits)]
            key, allowed = f"{FILE}: {source.path}", ALLOWED
        case QueryModel() as model:
            sources = _written(spec, model, source, corpus, attempt)
            key, allowed = f"{MODEL}: {model.model}", "a model that writes queries"
        case _:
            raise AssertionError("planned only with train.generated")
    output = write(attempt.root, sources)
    counts = output.counts["pairs"]
    summary = tables.line(counts)
    if not counts["accepted"]:
        raise InputError(f"{key}: no pair accepted ({summary}); allowed: {allowed}")
    say(f"  generated pairs: {summary}")
    say(f"  generated queries: {output.counts['queries']:,}, for {output.counts['documents']:,} documents")
    if counts["rejected"]:
        say(f"  rejected rows: {here(attempt.root / tables.REJECTED)}")
    return output


def _written(spec: JobSpec, model: QueryModel, source: PairSource, corpus: Artifact, attempt: Attempt) -> list[Source]:
    Generator(source.path, model, torch.device("cpu"))  # report a wrong folder here, not in an actor
    names = corpus.names("documents/")
    ledger = Ledger(attempt.scratch / "ledger", attempt.root)
    missing = [name for name in names if ledger.done(ledger_key(name)) is None]
    arguments = {
        "model": str(source.path),
        "spec": model.model_dump(),
        "corpus": str(corpus.root),
        "root": str(attempt.root),
        "ledger": str(ledger.folder),
        "cpus": spec.cluster.embed.cpus,
        "last": last_hash(corpus, model.most),
    }
    with Bar("generate", int(corpus.record.counts["rows"]), "documents") as bar:
        done = (ledger.done(ledger_key(name)) for name in names)
        bar.advance(sum(entry.counts["documents"] for entry in done if entry))
        for row in stream([{"part": name} for name in missing], GeneratePart, arguments, spec.cluster.embed):
            bar.advance(row["documents"])
    parts = ((name, files.read_table(attempt.root / written(name))) for name in names)
    return check_written(parts, spec.corpus.limits)


def written(name: str) -> str:
    return f"{SCRATCH}/written/{name.removeprefix('documents/')}"


def hashes(ids: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Hash SEED and the id of each row, [n]: the first by this hash are drawn, whatever the corpus's order."""
    return hash_ids([f"{SEED}\0{name}" for name in ids])


def last_hash(corpus: Artifact, most: int) -> int | None:
    """Return the largest hash of the `most` rows that are drawn. None: all are drawn."""
    if int(corpus.record.counts["rows"]) <= most:
        return None
    first = np.empty(0, np.uint64)
    for name in corpus.names("documents/"):
        hash_N = hashes(columns.read([corpus.path(name)], ["doc_id"])["doc_id"].to_pylist())
        first = np.concatenate([first, hash_N])
        if len(first) > most:
            first = np.partition(first, most - 1)[:most]
    return int(first.max())


def read_file(path: Path, corpus: Artifact, limits: Limits) -> Source:
    """Read a file of pairs: accepted and rejected ones. InputError where no pair names a document of the corpus."""
    form = lines.Format(lambda line: check.pair(check.json_row(line), limits), ALLOWED)
    rows = lines.whole(NamedFile(path.name, path), form).rows
    parsed = collect(distinct(known(rows, document_ids(corpus)), set()))
    unknown = [rejection.value for _, rejection in parsed.rejected if rejection.reason == Reason.UNKNOWN_DOCUMENT]
    if unknown and not parsed.accepted:
        own = next(name for names in _ids(corpus) for name in names)
        raise InputError(
            f"{FILE}: {path}: none of its {len(unknown):,} pairs names a document of the corpus (the first: "
            f"{unknown[0]!r}); allowed: ids of its documents, such as {own!r}"
        )
    return path.name, parsed


def check_written(written: Iterable[tuple[str, pa.Table]], limits: Limits) -> list[Source]:
    earlier: set[bytes] = set()
    return [
        (name, collect(distinct(checked(table.to_pylist(), lambda row: check.pair(row, limits)), earlier)))
        for name, table in written
    ]


def known(rows: Rows[Pair], documents: Container[str]) -> Rows[Pair]:
    for row in rows:
        if isinstance(row, Pair) and row.doc_id not in documents:
            yield Rejection(Reason.UNKNOWN_DOCUMENT, beginning(row.doc_id))
        else:
            yield row


def distinct(rows: Rows[Pair], earlier: set[bytes]) -> Rows[Pair]:
    """Reject pairs whose digest is in `earlier`, and add accepted ones to it."""
    for row in rows:
        if not isinstance(row, Pair):
            yield row
        elif (key := digest(row.query) + digest(row.doc_id)) in earlier:
            yield Rejection(Reason.DUPLICATE_PAIR, beginning(f"{row.doc_id} {row.query}"))
        else:
            earlier.add(key)
            yield row


def write(root: Location, sources: Sequence[Source]) -> Output:
    """Write accepted pairs, their queries and rejected rows below `root`, as parquet files. Returns counts and files.

    A text that is a query of several documents is one query there.
    """
    pairs = [pair for _, parsed in sources for _, pair in parsed.accepted]
    ids = {query: f"g{number}" for number, query in enumerate(dict.fromkeys(pair.query for pair in pairs))}
    queries = pa.table([list(ids.values()), list(ids)], schema=schemas.QUERIES)
    paired = pa.table([[ids[pair.query] for pair in pairs], [pair.doc_id for pair in pairs]], schema=schemas.PAIRS)
    rejected = tables.rejected((name, *row) for name, parsed in sources for row in parsed.rejected)
    written = [
        files.write_parquet(root, "queries.parquet", groups(queries), schemas.QUERIES),
        files.write_parquet(root, "pairs.parquet", groups(paired), schemas.PAIRS),
        files.write_parquet(root, tables.REJECTED, groups(rejected), schemas.REJECTED),
    ]
    return Output(_counts(sources, pairs) | {"queries": len(ids)}, tuple(written))


def _counts(sources: Sequence[Source], pairs: Sequence[Pair]) -> dict[str, Any]:
    read = sum(parsed.read for _, parsed in sources)
    reasons = [rejection.reason for _, parsed in sources for _, rejection in parsed.rejected]
    return {"pairs": tables.count(read, pairs, reasons), "documents": len({pair.doc_id for pair in pairs})}


def document_ids(corpus: Artifact) -> IdSet:
    """Return the ids that a pair or a judgement may name: of documents, not of their passages."""
    digests = [np.array([digest(name) for name in names], NO_DIGESTS.dtype) for names in _ids(corpus)]
    return IdSet(np.concatenate([NO_DIGESTS, *digests]))


def _ids(corpus: Artifact) -> Iterator[list[str]]:
    for name in corpus.names("documents/"):
        key = named_by(corpus.path(name))
        yield columns.read([corpus.path(name)], [key])[key].unique().to_pylist()


def named_by(path: Location) -> str:
    columns_there = files.read_metadata(path).schema.to_arrow_schema().names
    return schemas.PARENT.name if schemas.PARENT.name in columns_there else "doc_id"

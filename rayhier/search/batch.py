"""Searches all queries of a file and writes their results to another: `rayhier search WORKDIR --queries IN --out OUT`.

Queries are searched in chunks. A chunk's results are a file of their own beside the output, OUT.parts, which appears
whole or not at all; a command that was cut off goes on with the chunks that are missing. At the end the parts are
joined to the output in one step, so that every query is answered exactly once.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rayhier.progress import Bar, say
from rayhier.search.query_files import QueryFile, QueryRow, Refused
from rayhier.search.request import Queries
from rayhier.search.retrieve import Found
from rayhier.search.searcher import Searcher
from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.seal import seal, unseal

CHUNK = 1_000
"""Rows of the file of queries that are searched together."""
KINDS = (".parquet", ".jsonl", ".trec")
"""Endings of the output, which choose its format."""
RESULTS = pa.schema(
    [
        ("query_id", pa.string()),
        ("ids", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float32())),
        ("visited", pa.int64()),
    ]
)
"""Columns of the output as parquet: a row for each query, its results best first."""
LEDGER = "ledger.json"
TAG = "rayhier"


@dataclass(frozen=True)
class Job:
    """A batch search: an open index, a file of queries, the output, and what every query asks for."""

    searcher: Searcher
    queries: QueryFile
    out: Path
    arguments: dict[str, Any]
    """Arguments of `Searcher.rules.request` that all queries share, as JSON."""

    @property
    def parts(self) -> Path:
        """Folder of the chunks that are done, beside the output."""
        return self.out.with_name(f"{self.out.name}.parts")

    def run(self) -> tuple[int, Refused]:
        """Search all queries; returns how many were answered, and the rows that were refused.

        InputError where the output exists, all rows are refused, or parts are there of another file, index or request.
        """
        if self.out.suffix not in KINDS:
            raise InputError(f"--out: got {self.out.name!r}; allowed: a file that ends in {', '.join(KINDS)}")
        if self.out.exists():
            raise InputError(f"--out: {self.out} exists; allowed: a file that does not")
        self.out.parent.mkdir(parents=True, exist_ok=True)
        done = self._begin()
        refused, answered, names = Refused(), 0, list[str]()
        with Bar("search", 0, "queries") as bar:
            for number, rows in enumerate(self.queries.chunks(CHUNK, refused)):
                names.append(f"{number:06d}.parquet")
                answered += len(rows)
                if names[-1] not in done:
                    table = pa.Table.from_batches(list(self._answered(rows)), RESULTS)
                    files.write_parquet(self.parts, names[-1], [table], RESULTS)
                bar.expect(answered)
                bar.advance(len(rows))
        if not answered:
            raise InputError(
                f"--queries: {self.queries.path}: holds no query; {refused if refused.total else 'no row'}"
            )
        files.write(self.out, lambda place: _join([self.parts / name for name in names], place, self.out.suffix))
        shutil.rmtree(self.parts)
        return answered, refused

    def _begin(self) -> set[str]:
        """Write the ledger, or compare it with that of a command that was cut off; returns the parts that are done."""
        manifest = self.searcher.manifest
        ledger = {
            "queries": files.digest(self.queries.path),
            "index": f"model {manifest.model}, version {manifest.version}",
            "request": json.dumps(self.arguments, sort_keys=True),
            "chunk": CHUNK,
        }
        if not (self.parts / LEDGER).exists():
            shutil.rmtree(self.parts, ignore_errors=True)
            self.parts.mkdir()
            files.replace(self.parts / LEDGER, seal(ledger))
            return set()
        before = unseal(self.parts / LEDGER)
        if before != ledger:
            changed = ", ".join(name for name in ledger if before.get(name) != ledger[name])
            raise InputError(
                f"{self.parts}: holds parts of another search ({changed} changed); allowed: the same queries, index "
                "and options, to go on; or another --out, or remove this folder"
            )
        done = {path.name for path in self.parts.glob("[0-9]*.parquet")}
        say(f"  going on: {len(done):,} chunks of {CHUNK:,} rows are done")
        return done

    def _answered(self, rows: Sequence[QueryRow]) -> Iterator[pa.RecordBatch]:
        """Search the queries of a chunk: those with texts, then those with vectors; results in the chunk's order."""
        results: dict[str, tuple[list[str], list[float], int]] = {}
        texts = [row for row in rows if row.text is not None]
        vectors = [row for row in rows if row.vector is not None]
        parts: list[tuple[list[QueryRow], Queries]] = [(texts, [row.text or "" for row in texts])]
        if vectors:
            parts.append((vectors, np.stack([row.vector for row in vectors if row.vector is not None])))
        for part, queries in parts:
            if part:
                request = self.searcher.rules.request(queries, **self.arguments)
                results |= dict(zip((row.id for row in part), _results(self.searcher.retrieve(request)), strict=True))
        if rows:
            ids, scores, visited = zip(*(results[row.id] for row in rows), strict=True)
            columns = [[row.id for row in rows], list(ids), list(scores), list(visited)]
            yield pa.RecordBatch.from_arrays(
                [pa.array(values, kind) for values, kind in zip(columns, RESULTS.types, strict=True)], schema=RESULTS
            )


def _results(found: Found) -> Iterator[tuple[list[str], list[float], int]]:
    """Yield each query's ids, best first, their scores, and the number of documents visited."""
    ranking = found.ranking
    for row_K, score_K, visited in zip(ranking.row_QK, ranking.score_QK, ranking.visited_Q, strict=True):
        present_K = row_K >= 0
        yield ranking.ids[row_K[present_K]].tolist(), score_K[present_K].tolist(), int(visited)


def _join(parts: Sequence[Path], place: Path, kind: str) -> None:
    """Write the rows of all parts to one file in the format that the output's ending names."""
    if kind == ".parquet":
        with pq.ParquetWriter(place, RESULTS) as writer:
            for part in parts:
                writer.write_table(files.read_table(part))
        return
    line: Callable[[IO[str], dict[str, Any]], None] = _json if kind == ".jsonl" else _trec
    with place.open("w") as out:
        for part in parts:
            for row in files.read_table(part).to_pylist():
                line(out, row)


def _json(out: IO[str], row: dict[str, Any]) -> None:
    out.write(json.dumps(row, ensure_ascii=False) + "\n")


def _trec(out: IO[str], row: dict[str, Any]) -> None:
    for rank, (name, score) in enumerate(zip(row["ids"], row["scores"], strict=True)):
        out.write(f"{_unspaced(row['query_id'])} Q0 {_unspaced(name)} {rank} {score:.9g} {TAG}\n")


def _unspaced(name: str) -> str:
    """Percent-encode blanks and % in an id: blanks divide the columns of a TREC run."""
    return re.sub(r"[\s%]", lambda blank: quote(blank[0]), name)

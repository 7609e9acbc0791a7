"""Searches all queries of a file, or all documents of the index, and writes their results to a file.

Queries are searched in chunks, in this process or by several (search/ray.py). A chunk's results are a file of their own
beside the output, OUT.parts, which appears whole or not at all; a command that was cut off goes on with the chunks that
are missing. At the end the parts are joined to the output in one step, so that every query is answered exactly once.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rayhier.dataset.ranking import ID
from rayhier.progress import Bar, say
from rayhier.scores.call_budget import ScorerError
from rayhier.search.query_files import Chunk, Refused
from rayhier.search.request import Request, Rules
from rayhier.search.retrieve import Found
from rayhier.search.searcher import Searcher
from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.leaf_map import Manifest
from rayhier.storage.seal import seal, unseal

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

Numbered = Iterator[tuple[int, Chunk]]
"""Chunks with their numbers."""
Answers = Callable[[Numbered], Iterator[tuple[int, pa.Table]]]
"""Function that searches chunks, and yields the number and the results of each as they are found, in any order."""


class Source(Protocol):
    """Interface of what queries are read from, always in the same chunks."""

    @property
    def size(self) -> int:
        """Most queries of a chunk."""

    @property
    def digest(self) -> str:
        """Text that differs where the queries differ."""

    def __len__(self) -> int:
        """Number of rows, refused ones too."""

    def chunks(self, refused: Refused) -> Iterator[Chunk]:
        """Yield the chunks; rows that no search can answer are counted in `refused`."""


@dataclass(frozen=True)
class Job:
    """A batch search: queries, the version of an index, the output, and what every query asks for."""

    queries: Source
    manifest: Manifest
    rules: Rules
    out: Path
    arguments: dict[str, Any]
    """Arguments of `rules.request` that all queries share, as JSON."""

    @property
    def parts(self) -> Path:
        """Folder of the chunks that are done, beside the output."""
        return self.out.with_name(f"{self.out.name}.parts")

    def check(self) -> None:
        """Raise InputError where the output has no known ending or exists, or parts are there of another search."""
        if self.out.suffix not in KINDS:
            raise InputError(f"--out: got {self.out.name!r}; allowed: a file that ends in {', '.join(KINDS)}")
        if self.out.exists():
            raise InputError(f"--out: {self.out} exists; allowed: a file that does not")
        if (self.parts / LEDGER).exists():
            before, ledger = unseal(self.parts / LEDGER), self._ledger
            changed = ", ".join(name for name in ledger if before.get(name) != ledger[name])
            if changed:
                raise InputError(
                    f"{self.parts}: holds parts of another search ({changed} changed); allowed: the same queries, "
                    "index and options, to go on; or another --out, or remove this folder"
                )

    def done(self) -> set[str]:
        """Return the names of the parts that are done."""
        return {path.name for path in self.parts.glob("[0-9]*.parquet")}

    def run(self, answers: Answers) -> tuple[int, Refused]:
        """Search all queries; returns how many were answered, and the rows that were refused.

        InputError as in `check`, and where all rows are refused.
        """
        self.check()
        done = self._begin()
        refused, answered = Refused(), dict[str, int]()
        with Bar("search", len(self.queries), "queries") as bar:

            def missing() -> Numbered:
                for number, chunk in enumerate(self.queries.chunks(refused)):
                    answered[_name(number)] = len(chunk.ids)
                    if _name(number) not in done:
                        yield number, chunk
                    else:
                        bar.advance(len(chunk.ids))

            for number, table in answers(missing()):
                files.write_parquet(self.parts, _name(number), [table], RESULTS)
                bar.advance(table.num_rows)
        if not sum(answered.values()):
            raise InputError(f"{self.queries}: hold no query; {refused if refused else 'there is no row'}")
        files.write(self.out, lambda place: _join([self.parts / name for name in answered], place, self.out.suffix))
        shutil.rmtree(self.parts)
        return sum(answered.values()), refused

    @property
    def _ledger(self) -> dict[str, Any]:
        return {
            "queries": self.queries.digest,
            "index": f"model {self.manifest.model}, version {self.manifest.version}",
            "request": json.dumps(self.arguments, sort_keys=True),
            "chunk": self.queries.size,
        }

    def _begin(self) -> set[str]:
        """Write the ledger, where there is none; returns the parts that are done."""
        if not (self.parts / LEDGER).exists():
            shutil.rmtree(self.parts, ignore_errors=True)
            self.parts.mkdir(parents=True)
            files.replace(self.parts / LEDGER, seal(self._ledger))
            return set()
        done = self.done()
        say(f"  going on: {len(done):,} chunks of {self.queries.size:,} rows are done")
        return done


def in_this_process(searcher: Searcher, arguments: dict[str, Any]) -> Answers:
    """Return the function that searches one chunk after another in this process."""

    def answers(chunks: Numbered) -> Iterator[tuple[int, pa.Table]]:
        for number, chunk in chunks:
            yield number, answered(searcher.rules, chunk, arguments, searcher.retrieve)

    return answers


def answered(rules: Rules, chunk: Chunk, arguments: dict[str, Any], retrieve: Callable[[Request], Found]) -> pa.Table:
    """Search the queries of a chunk by `retrieve`; returns their results in the chunk's order, as `RESULTS`.

    Of documents only the ids are read. InputError where the index does not allow the arguments with these queries, or
    the cross-encoder fails.
    """
    tables, places = [RESULTS.empty_table()], []
    for place_A, queries in chunk.parts:
        request = replace(rules.request(queries, **arguments), needs="ids")
        k = request.k
        if chunk.self_ids is not None:
            request = replace(request, k=k + 1)
        try:
            found = retrieve(request)
        except ScorerError as error:
            raise InputError(str(error)) from error
        self_ids = None if chunk.self_ids is None else [chunk.self_ids[place] for place in place_A.tolist()]
        tables.append(_results([chunk.ids[place] for place in place_A.tolist()], found, k, self_ids))
        places.append(place_A)
    table = pa.concat_tables(tables)
    return table.take(pa.array(np.argsort(np.concatenate(places)))) if len(places) > 1 else table


def _results(names: Sequence[str], found: Found, k: int, self_ids: Sequence[str] | None) -> pa.Table:
    """Make the table of the best `k` results of each query, without the one that is the query itself (`self_ids`)."""
    ranking = found.ranking
    id_N, kept_QK = ranking.documents[ID].combine_chunks(), ranking.row_QK >= 0
    if self_ids is not None and len(id_N):
        self_Q = pa.array(self_ids, pa.string())
        place_N, place_Q = (pc.index_in(ids, self_Q).fill_null(-1).to_numpy() for ids in (id_N, self_Q))
        kept_QK &= place_N[ranking.row_QK] != place_Q[:, None]
        kept_QK &= np.cumsum(kept_QK, axis=1) <= k
    ends = np.concatenate([[0], np.cumsum(kept_QK.sum(axis=1))]).astype(np.int32)
    values = id_N.take(pa.array(ranking.row_QK[kept_QK])), pa.array(ranking.score_QK[kept_QK], pa.float32())
    lists = [pa.ListArray.from_arrays(pa.array(ends), each) for each in values]
    return pa.table([pa.array(names, pa.string()), *lists, pa.array(ranking.visited_Q, pa.int64())], schema=RESULTS)


def _name(number: int) -> str:
    """Return the name of a chunk's part."""
    return f"{number:06d}.parquet"


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

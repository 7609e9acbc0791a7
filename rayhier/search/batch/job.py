"""Searches all queries of a file, or all documents of the index, and writes their results to a file.

Each chunk of queries gets a file of results in the folder OUT.parts. The file appears whole or not at all. An
interrupted command continues with the missing chunks. At last, all files are joined into the output in one step.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rayhier.dataset.ranking import ID
from rayhier.progress import Bar, say
from rayhier.scores.call_budget import ScorerError
from rayhier.search.batch.query_files import Chunk, Refused, Source
from rayhier.search.request.request import Request, Rules
from rayhier.search.retrieve import Found
from rayhier.search.snapshot import Snapshot
from rayhier.spec import InputError
from rayhier.storage import files, parquet
from rayhier.storage.files import seal, unseal
from rayhier.storage.leaf_map import LeafMap, Manifest

KINDS = (".parquet", ".jsonl", ".trec")
"""Endings of the output file's name, which choose the output's format."""
RESULTS = pa.schema(
    [
        ("query_id", pa.string()),
        ("ids", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float32())),
        ("visited", pa.int64()),
    ]
)
"""Columns of the output as parquet: a row for each query, with its results, best first."""
LEDGER = "ledger.json"
TAG = "rayhier"
SAMPLED = 1_000
"""Documents whose ids are read to estimate the size of the output."""
BESIDE = {".parquet": (4, 12), ".jsonl": (26, 60), ".trec": (32, 0)}
"""Ending of the output -> estimated bytes of each result, and of each query, without their ids."""


@dataclass(frozen=True)
class Job:
    """A batch search: queries, the version of an index, the output, and the arguments of all queries."""

    queries: Source
    manifest: Manifest
    rules: Rules
    out: Path
    arguments: dict[str, Any]
    """Arguments of `rules.request` that all queries share, as JSON."""

    @property
    def parts(self) -> Path:
        """Folder of the finished chunks, next to the output."""
        return self.out.with_name(f"{self.out.name}.parts")

    def check(self) -> None:
        """Raise InputError if the output has no known ending or exists, or there are parts of another search."""
        if self.out.suffix not in KINDS:
            raise InputError(f"--out: got {self.out.name!r}; allowed: a file that ends in {', '.join(KINDS)}")
        if self.out.exists():
            raise InputError(f"--out: {self.out} exists; allowed: a new file")
        if self.done():
            before, ledger = unseal(self.parts / LEDGER), self._ledger
            changed = ", ".join(name for name in ledger if before.get(name) != ledger[name])
            if changed:
                raise InputError(
                    f"{self.parts}: got another search ({changed} changed); allowed: the same queries, index and "
                    "options. Or set another --out, or remove this folder"
                )

    def done(self) -> set[str]:
        return {path.name for path in self.parts.glob("[0-9]*.parquet")}

    def run(self, searcher: Snapshot) -> tuple[int, Refused]:
        """Search all queries. Returns the number of answers, and the refused rows. InputError if there is no answer."""
        self.check()
        done = self._begin()
        refused, answered = Refused(), dict[str, int]()
        try:
            with Bar("search", len(self.queries), "queries") as bar:
                for number, chunk in enumerate(self.queries.chunks(refused)):
                    if chunk.ids:
                        answered[_name(number)] = len(chunk.ids)
                        if _name(number) not in done:
                            table = self.answered(searcher, chunk)
                            parquet.write(self.parts, _name(number), [table], RESULTS)
                    bar.advance(len(chunk.ids))
            if not answered:
                raise InputError(f"{self.queries}: got no query: {refused if refused else 'there is no row'}")
        except InputError:
            if not self.done():
                shutil.rmtree(self.parts)
            raise
        files.write(self.out, lambda place: _join([self.parts / name for name in answered], place, self.out.suffix))
        shutil.rmtree(self.parts)
        return sum(answered.values()), refused

    def answered(self, searcher: Snapshot, chunk: Chunk) -> pa.Table:
        """Return results of a chunk's queries, in their order. InputError if the request or the cross-encoder fails."""
        tables, places = [RESULTS.empty_table()], []
        for place_A, queries in chunk.parts:
            request = replace(searcher.rules.request(queries, **self.arguments), needs="ids")
            k = request.k
            if chunk.self_ids is not None:
                request = replace(request, k=k + 1)
            try:
                found = searcher.retrieve(request)
            except ScorerError as error:
                raise InputError(str(error)) from error
            self_ids = None if chunk.self_ids is None else [chunk.self_ids[place] for place in place_A.tolist()]
            tables.append(_results([chunk.ids[place] for place in place_A.tolist()], found, k, self_ids))
            places.append(place_A)
        table = pa.concat_tables(tables)
        return table.take(pa.array(np.argsort(np.concatenate(places)))) if len(places) > 1 else table

    @property
    def _ledger(self) -> dict[str, Any]:
        return {
            "queries": self.queries.digest,
            "index": f"model {self.manifest.model}, version {self.manifest.version}",
            "request": json.dumps(self.arguments, sort_keys=True),
            "chunk": self.queries.size,
        }

    def _begin(self) -> set[str]:
        """Write the ledger, which identifies the search, if no part is finished. Returns names of finished parts."""
        done = self.done()
        if not done:
            shutil.rmtree(self.parts, ignore_errors=True)
            self.parts.mkdir(parents=True)
            files.replace(self.parts / LEDGER, seal(self._ledger))
            return done
        say(f"  continuing: {len(done):,} chunks of {self.queries.size:,} rows are finished")
        return done


def _results(names: Sequence[str], found: Found, k: int, self_ids: Sequence[str] | None) -> pa.Table:
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
    return f"{number:06d}.parquet"


def _join(parts: Sequence[Path], place: Path, kind: str) -> None:
    if kind == ".parquet":
        with pq.ParquetWriter(place, RESULTS) as writer:
            for part in parts:
                writer.write_table(parquet.read(part))
        return
    line: Callable[[IO[str], dict[str, Any]], None] = _json if kind == ".jsonl" else _trec
    with place.open("w") as out:
        for part in parts:
            for row in parquet.read(part).to_pylist():
                line(out, row)


def _json(out: IO[str], row: dict[str, Any]) -> None:
    out.write(json.dumps(row, ensure_ascii=False) + "\n")


def _trec(out: IO[str], row: dict[str, Any]) -> None:
    for rank, (name, score) in enumerate(zip(row["ids"], row["scores"], strict=True)):
        out.write(f"{_unspaced(row['query_id'])} Q0 {_unspaced(name)} {rank} {score:.9g} {TAG}\n")


def _unspaced(name: str) -> str:
    """Percent-encode blanks and % in an id, as blanks divide the columns of a TREC run."""
    return re.sub(r"[\s%]", lambda blank: quote(blank[0]), name)


def plan(job: Job, leaf_map: LeafMap, request: Request) -> Iterator[str]:
    rows, done = len(job.queries), len(job.done())
    manifest = job.manifest
    yield f"queries   {rows:,} {job.queries}"
    yield (
        f"index     version {manifest.version} of model {manifest.model}: {manifest.documents:,} documents in "
        f"{manifest.leaves:,} leaves"
    )
    yield f"search    {request.k} results of each query, {_how(job, request)}"
    there = f", {done:,} of them finished" if done else ""
    size = _size(_bytes(job, leaf_map, request.k))
    yield f"output    {job.out}, at most {size}, in parts of at most {job.queries.size:,} queries{there}"


def _how(job: Job, request: Request) -> str:
    rules, documents = job.rules, f"{job.manifest.documents:,} documents"
    words = {"dense": "", "bm25": f"the words of all {documents}", "hybrid": f"the words of all {documents}, and "}
    near = ""
    if request.mode != "bm25" and request.beam:
        visited = request.beam * rules.rows / max(1, rules.leaves)
        near = f"at most {request.beam:,} leaves, about {visited:,.0f} rows"
        if request.where is not None or request.fills:
            why = "with the filter" if request.where is not None else f"if these have fewer than {request.k:,}"
            near += f", and {why} at most all"
    elif request.mode != "bm25":
        near = f"all {documents} by level {rules.search.level} of the tree"
    read = f". The cross-encoder reads {request.budget:,} documents for each" if request.budget else ""
    return f"from {words[request.mode]}{near}{read}"


def _bytes(job: Job, leaf_map: LeafMap, k: int) -> float:
    shard = next((shard for shard in leaf_map.manifest.shards if shard.rows), None)
    if shard is None:
        return 0.0
    ids = parquet.read_rows(leaf_map.root / shard.file.name, [leaf_map.key(shard)], 0, min(SAMPLED, shard.rows))
    name = float(ids.nbytes) / ids.num_rows
    result, query = BESIDE[job.out.suffix]
    listed = min(k, job.manifest.documents)
    of_query = name * (listed if job.out.suffix == ".trec" else 1)  # a run repeats a query's id in every line
    of_all: float = len(job.queries) * (listed * (name + result) + of_query + query)
    return of_all


def _size(number: float) -> str:
    """Format a number of bytes.

    >>> _size(1_230_000), _size(45e9)
    ('1 MB', '45.0 GB')
    """
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{max(1, round(number / 1e6)):,} MB"

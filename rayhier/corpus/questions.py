"""Read queries and judgements of a source, and check them against each other and the documents.

Queries and judgements of the test split are a separate artifact, so that new test queries change nothing trained.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa

from rayhier.corpus import tables
from rayhier.corpus.lines import refusal
from rayhier.corpus.reader import Reader, Rows, Stream, collect, distinct, known
from rayhier.corpus.row_checks import Entry, Judgement, ParsedRows, Reason
from rayhier.corpus.split import Counts, cut
from rayhier.dataset.families import asked_before
from rayhier.storage.listing import SPLITS

TRAINING, TEST = SPLITS[:2], SPLITS[2]
T = TypeVar("T")

Files = Sequence[tuple[str, ParsedRows[T]]]


@dataclass(frozen=True)
class Questions:
    queries: Files[Entry]
    judgements: Mapping[str, Files[Judgement]]
    named: frozenset[str] | None
    """Ids of queries that train or dev judgements name, also in rejected judgements. None if nothing is judged."""
    earlier: Mapping[str, str] = field(default_factory=dict)
    """Id -> text of the queries in train and dev, if `splits` has only the test split. Else empty."""

    @property
    def accepted_queries(self) -> list[Entry]:
        return _accepted(self.queries)

    @property
    def splits(self) -> dict[str, Sequence[Judgement]]:
        """Accepted judgements by split. A dev split without judgements is cut out of train."""
        return self._divided[0]

    @cached_property
    def _divided(self) -> tuple[dict[str, Sequence[Judgement]], Counts | None]:
        by_split: dict[str, Sequence[Judgement]] = {split: _accepted(rows) for split, rows in self.judgements.items()}
        if not by_split.get("train") or by_split.get("dev"):
            return by_split, None
        train, dev, counts = cut(by_split["train"], self._texts)
        return by_split | {"train": train, "dev": dev}, counts

    @property
    def _texts(self) -> dict[str, str]:
        return {query.key: query.text for query in self.accepted_queries}

    def asked_before(self) -> dict[str, dict[str, int]]:
        """Count dev and test queries that are also in earlier splits: by id, and further queries by text."""
        texts, earlier = {**self.earlier, **self._texts}, dict(self.earlier)
        counted = {}
        for split, rows in self.splits.items():
            asked = {row.query_id: texts[row.query_id] for row in rows}
            if split != "train":
                by_id, by_text = (int(same_Q.sum()) for same_Q in asked_before(asked, earlier))
                counted[split] = {"queries": len(asked), "by_id": by_id, "by_text": by_text}
            earlier |= asked
        return counted

    def of_training(self) -> "Questions":
        """Select train and dev judgements, and the accepted queries in them. Selects all if nothing is judged."""
        if self.named is None:
            return self
        judgements = {split: rows for split, rows in self.judgements.items() if split != TEST}
        return replace(self, queries=self._queries(of_training=True), judgements=judgements)

    def of_test(self) -> "Questions":
        """Select what `of_training` leaves: test judgements, remaining queries, and rejected rows of queries."""
        texts, judged = self._texts, [row.query_id for split in TRAINING for row in self.splits.get(split, ())]
        earlier = {query: texts[query] for query in judged}
        queries, judgements = self._queries(of_training=False), {TEST: self.judgements[TEST]}
        return replace(self, queries=queries, judgements=judgements, earlier=earlier)

    def _queries(self, *, of_training: bool) -> Files[Entry]:
        named, parts = self.named or frozenset(), []
        for name, parsed in self.queries:
            accepted = [(line, query) for line, query in parsed.accepted if (query.key in named) == of_training]
            rejected = [] if of_training else parsed.rejected
            parts.append((name, ParsedRows(parsed.lines, len(accepted) + len(rejected), accepted, rejected)))
        return parts

    def rejected(self) -> Iterable[pa.Table]:
        kinds: list[Files[Any]] = [self.queries, *self.judgements.values()]
        for by_file in kinds:
            for name, parsed in by_file:
                yield tables.rejected((name, *row) for row in parsed.rejected)

    def counts(self) -> dict[str, Any]:
        return {
            "queries": _counts(self.queries) | {"cut": sum(query.cut for query in self.accepted_queries)},
            "judgements": {split: _counts(rows) for split, rows in self.judgements.items()},
            "splits": tables.describe(self.splits),
            "asked_before": self.asked_before(),
            **({} if self._divided[1] is None else {"cut": self._divided[1]}),
        }


def read(reader: Reader, documents: Container[str] | None, *, judged: bool = True) -> Questions:
    """Read the queries of a source, each id once, and their judgements, each pair once in a split.

    `documents` is None if any document may be judged. InputError if no row of a file has the right number of columns.
    """
    earlier: set[bytes] = set()
    queries = [_parsed(stream, distinct(stream.rows, earlier)) for stream in reader.queries()]
    ids, judgements = {query.key for query in _accepted(queries)}, {}
    for split in SPLITS:
        pairs: set[bytes] = set()
        streams = reader.judgements(split)
        judgements[split] = [_parsed(stream, known(stream.rows, ids, documents, pairs)) for stream in streams]
    return Questions(queries, judgements, _named(reader) if judged else None)


def _named(reader: Reader) -> frozenset[str]:
    streams = (stream for split in TRAINING for stream in reader.judgements(split))
    return frozenset(row.query_id for stream in streams for row in stream.rows if isinstance(row, Judgement))


def _parsed(stream: Stream[T], rows: Rows[T]) -> tuple[str, ParsedRows[T]]:
    parsed = collect(rows)
    misshapen = [line for line, rejection in parsed.rejected if rejection.reason == Reason.WRONG_COLUMNS]
    if stream.path is not None and 0 < len(misshapen) == parsed.read:
        raise refusal(stream.path, stream.allowed)
    return stream.source, parsed


def _accepted(files: Files[T]) -> list[T]:
    return [row for _, parsed in files for _, row in parsed.accepted]


def _counts(files: Files[Any]) -> dict[str, Any]:
    reasons = (rejection.reason for _, parsed in files for _, rejection in parsed.rejected)
    return tables.count(sum(parsed.read for _, parsed in files), _accepted(files), reasons)

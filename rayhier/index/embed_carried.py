"""Encode documents whose vectors were carried from another model, most visited leaves first, version by version.

A report beside the index tells what each stage loses: how well dev queries find their answers with the model before,
with carried vectors, and the more documents are encoded.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Ints
from rayhier.corpus.passages import DocumentLayout
from rayhier.dataset.documents import document_texts
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, load_queries
from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.model.encoded import Encoded
from rayhier.model.router import route_all
from rayhier.search.model import Model
from rayhier.search.searcher import Searcher
from rayhier.storage import current, files
from rayhier.storage.artifact import Artifact
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import Location

BATCH = 4_096
"""Documents that a version encodes, about; a quarter of those that were carried where that is less, a twentieth where
that is more: versions are few."""
VISITS = 16
"""Leaves that a query counts as a visit of."""
QUERIES, KNOWN = 1_000, 2_000
"""Most dev queries by which stages are measured, and most known queries by which leaves are ordered."""
REPORT = "carry.json"
NDCG = "nDCG@10"


class Embedding:
    """Encodes the carried documents of an index; each call of `next` publishes a version."""

    def __init__(self, root: Location, model: Model, fingerprint: str, texts: Sequence[str] = ()) -> None:
        """Take the folder of the leaf map, its model and that one's fingerprint, and texts of known queries."""
        self._root, self._model, self._layout = root, model, DocumentLayout.of(model.spec.corpus)
        self._assign = Assigner(model.router, model.spec, fingerprint)
        self._visit_L = visits(model, texts)

    @classmethod
    def of_workdir(cls, workdir: Location, now: Current, model: Model) -> Self:
        """Encode the carried documents of the index that `now` names; train and dev queries say what is visited."""
        index, texts = current.artifact(workdir, now, "index"), list[str]()
        if {"corpus", "vectors"} <= now.artifacts.keys():
            corpus, vectors = (current.artifact(workdir, now, kind) for kind in ("corpus", "vectors"))
            texts = [text for split in ("dev", "train") for text in load_queries(corpus, vectors, split).texts]
        return cls(index.root, model, now.artifacts["model"], texts[:KNOWN])

    def next(self, most: int = BATCH) -> LeafMap | None:
        """Encode about `most` documents, of the most visited leaves; returns the version, or None where none is left.

        InputError where one of these documents was changed at the same time.
        """
        newest = LeafMap.open(self._root)
        if not newest.manifest.carried:
            return None
        left = change.carried_rows(newest)
        order_N = np.argsort(-self._visit_L[left["leaf"].to_numpy()], kind="stable")
        ids = left["id"].take(pa.array(order_N[:most])).combine_chunks().unique()
        names = [*self._layout.schema.names, "rank"]
        # Passages of a document are replaced together, also those that were encoded.
        whole = self._layout.passages is not None
        shards = [shard for shard in newest.manifest.shards if shard.rows and (shard.carried or whole)]
        tables = [newest.read(shard, names, verify=False) for shard in shards]
        rows = [table.filter(pc.and_(pc.is_in(table[self._layout.key], ids), _first(table))) for table in tables]
        documents = pa.concat_tables(rows).select(self._layout.schema.names)
        batch = documents, self._model.encode(document_texts(documents))
        return change.embed(self._root, self._assign, batch, self._model.spec.index.max_leaf_factor)


def _first(table: pa.Table) -> pa.Array:
    return pc.equal(table["rank"], 0)


def visits(model: Model, texts: Sequence[str]) -> Ints:
    """Count the visits [leaves] of queries to leaves."""
    beam = min(VISITS, model.router.n_leaves)
    if not texts:
        return np.zeros(model.router.n_leaves, np.int64)
    encoded: Encoded = model.encode(texts)
    leaves_QB = route_all(model.trained, encoded, beam)[0].numpy()
    return np.bincount(leaves_QB[leaves_QB >= 0], minlength=model.router.n_leaves)


@dataclass(frozen=True)
class DevQueries:
    """Dev queries, of which some are asked in every stage; there may be none."""

    queries: Queries

    @classmethod
    def of(cls, corpus: Artifact, vectors: Artifact) -> "DevQueries":
        """Load the judged dev queries of a corpus, QUERIES at most."""
        queries = load_queries(corpus, vectors, "dev")
        return cls(queries.some(np.arange(len(queries)) < QUERIES))

    def measured(self, workdir: Location, now: Current) -> dict[str, float]:
        """Measure the newest version of the index that `now` names: nDCG@10 as searches rank, and by vectors alone."""
        texts = list(self.queries.texts)
        if not texts or not self.queries.answered:
            return {}
        searcher, judge = Searcher.of_version(workdir, now), Judge(self.queries, (NDCG,))
        usual, dense = (judge.mean(searcher.rank(texts, mode=mode)[0])[NDCG] for mode in (None, "dense"))
        searcher.close()
        return {NDCG: usual, f"{NDCG} by vectors": dense}


class Report:
    """`carry.json` beside an index: what was carried, and how the stages compare."""

    def __init__(self, index: Artifact, about: dict[str, Any]) -> None:
        """Begin a report, or go on with the one that is there."""
        self._path = index.folder / REPORT
        self.content: dict[str, Any] = {**about, "stages": []}
        if self._path.is_file():
            self.content = files.read_json(self._path)

    def add(self, stage: str, seconds: float, left: int, measures: dict[str, float]) -> str:
        """Add a stage and write the report; returns the stage as a line to print."""
        self.content["stages"].append({"stage": stage, "seconds": round(seconds, 1), "left": left, **measures})
        files.write_json(self._path, self.content)
        shown = "  ".join(f"{name} {value:.4f}" for name, value in measures.items())
        return f"{stage:24} {seconds:8.1f} s  {left:>11,} carried  {shown}"


def embed_all(workdir: Location, now: Current, say: Any) -> LeafMap | None:
    """Encode all carried documents of the current index; `say` gets a line for every quarter that is done.

    Returns the last version; None where nothing was carried. InputError where a document changes meanwhile.
    """
    index, model = current.artifact(workdir, now, "index"), Model.of_workdir(workdir, now)
    corpus, vectors = (current.artifact(workdir, now, kind) for kind in ("corpus", "vectors"))
    queries, began, last = DevQueries.of(corpus, vectors), time.monotonic(), None
    report = Report(index, {})
    whole = int(index.record.counts.get("carried", 0))
    embedding = Embedding.of_workdir(workdir, now, model)
    quarter = 4 - -(-4 * LeafMap.open(index.root).manifest.carried // max(1, whole))
    most = max(min(BATCH, -(-whole // 4)), -(-whole // 20))
    while (made := embedding.next(most)) is not None:
        last, left = made, made.manifest.carried
        done = 4 if not left else int(4 * (1 - left / max(1, whole)))
        if done > quarter:
            quarter = done
            say(report.add(f"{25 * done}% encoded", time.monotonic() - began, left, queries.measured(workdir, now)))
    return last

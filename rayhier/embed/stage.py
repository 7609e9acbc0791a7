"""Encode the corpus: each encoder of a pool encodes one part of the corpus at a time."""

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from rayhier.arrays import Floats
from rayhier.dataset.generated import VECTORS as GENERATED
from rayhier.dataset.holdout import hash_ids
from rayhier.dataset.spans import FOLDER
from rayhier.embed.clock import Clock, Utilisation
from rayhier.embed.earlier import QUERIES, EarlierVectors, Inputs, read_texts, role_of
from rayhier.embed.encode import TextEncoder, limit_threads
from rayhier.embed.precision import agreed, is_alike
from rayhier.embed.saved import SavedVectors
from rayhier.embed.spans import SpanDrawer
from rayhier.executor import Executor, Pool, Row
from rayhier.model.encoder import Encoder
from rayhier.progress import Bar, log
from rayhier.spec import InputError, JobSpec
from rayhier.spec.train.pseudo_queries import MOST_DRAWN, PseudoQueries
from rayhier.storage import columns, parquet, schemas
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.ledger import Ledger, LedgerEntry
from rayhier.storage.model_folder import ModelFolder
from rayhier.storage.model_layout import Role

IDS_SHOWN = 5
CHECKED = 1_000
"""Number of documents that are tokenised at a time to find out if any has a pseudo-query."""


class EmbedPart:
    """Encodes parts: reads texts of `inputs` and writes their vectors below the root of `ledger`."""

    def __init__(
        self, model: Path, spec: JobSpec, inputs: Inputs, ledger: Ledger, earlier: Artifact | None = None
    ) -> None:
        limit_threads(spec.cluster.embed.cpus)
        self.inputs, self.ledger, self.earlier = inputs, ledger, EarlierVectors(earlier)
        self.suffix = "" if earlier is None else f"-{earlier.record.fingerprint}"
        self.encoder = TextEncoder(model, agreed(spec.encoder, ledger))
        self.clock, draws = Clock(self.encoder), spec.train.draws
        self.drawer = None if draws is None else SpanDrawer.of(self.encoder, draws)
        self.share = min(1.0, MOST_DRAWN / inputs["corpus"].record.counts["rows"])

    def __call__(self, item: Row) -> Iterator[Row]:
        name = str(item["part"])
        ids, texts = read_texts(self.inputs, name)
        saved = SavedVectors(self.ledger, ledger_key(name) + self.suffix)  # of the texts that `earlier` lacks
        vectors, reused = yield from self._encoded(saved, texts, role_of(name))
        key = ids.column_names[0]
        check_numbers(name, ids[key], vectors)
        schema = schemas.vectors(key, self.encoder.dimension)
        column = columns.vector_column(vectors, pa.float32())
        written = [parquet.write(self.ledger.root, name, [pa.table([ids[key], column], schema=schema)], schema)]
        counts = {"rows": len(texts), "precision": self.encoder.precision, "reused": reused}
        if self.drawer is not None and name not in (QUERIES, GENERATED):
            drawn = yield from self._drawn(self.drawer, name)
            place = FOLDER + name.removeprefix("documents/")
            written.append(parquet.write(self.ledger.root, place, [drawn], drawn.schema))
            counts["pseudo-queries"] = len(drawn)
        self.ledger.enter(ledger_key(name), LedgerEntry(tuple(written), counts))
        saved.drop()
        yield {"rows": 0, **self.clock.lap()}

    def _encoded(
        self, saved: SavedVectors, texts: Sequence[str], role: Role, *, counted: bool = True
    ) -> Generator[Row, None, tuple[Floats, int]]:
        """Encode texts that no earlier run encoded. Returns vectors [n, m], and the number of reused vectors."""
        is_stored_N, vector_NM = self.earlier.find(texts, role, self.encoder.dimension)
        reused = int(is_stored_N.sum())
        yield {"rows": reused if counted else 0, **self.clock.lap()}
        tokens = self.encoder.tokenised([texts[row] for row in np.flatnonzero(~is_stored_N).tolist()], role)
        vector_NM[~is_stored_N] = yield from saved.encode(self.encoder, tokens, self.clock, counted=counted)
        return vector_NM, reused

    def _drawn(self, drawer: SpanDrawer, name: str) -> Generator[Row, None, pa.Table]:
        table = columns.read([self.inputs["corpus"].path(name)], ["doc_id", "title", "text"])
        if self.share < 1:
            table = table.filter(hash_ids(table["doc_id"].to_pylist()) < self.share * 2.0**64)
        rows, texts = drawer.draw(*(table[column].to_pylist() for column in table.column_names))
        saved = SavedVectors(self.ledger, f"{ledger_key(name)}-spans{self.suffix}")
        vectors, _ = yield from self._encoded(saved, texts, "query", counted=False)
        ids = table["doc_id"].take(pa.array(rows, pa.int64()))
        check_numbers(name, ids, vectors)
        column = columns.vector_column(vectors, pa.float32())
        return pa.table([ids, pa.array(texts, pa.string()), column], schema=schemas.spans(self.encoder.dimension))


def build(
    executor: Executor, spec: JobSpec, model: ModelFolder, inputs: Inputs, attempt: Attempt, earlier: Artifact | None
) -> Output:
    """Encode all texts that `earlier` lacks with the base encoder. InputError if that encoder is unusable."""
    corpus, generated = inputs["corpus"], inputs.get("generated")
    # A wrong folder is reported here, not in an actor. An encoder that cannot train is reported before hours of work.
    encoder = Encoder(model.path, torch.float32)
    if (part := spec.encoder.transformer_part) is not None:
        encoder.trainable(part)
    draws = spec.train.draws
    if draws is not None:
        check_draws(draws, spec, encoder, corpus)
    names = [*corpus.names("documents/"), QUERIES, *([] if generated is None else [GENERATED])]
    ledger = Ledger(attempt.scratch / "ledger", attempt.root)
    missing = [{"part": name} for name in reversed(names) if ledger.done(ledger_key(name)) is None]  # few queries first
    total = corpus.record.counts["rows"] + corpus.record.counts["queries"]["accepted"]
    total += 0 if generated is None else generated.record.counts["queries"]
    earlier = earlier if earlier is not None and is_alike(spec, ledger, earlier) else None
    arguments = {"model": model.path, "spec": spec, "inputs": inputs, "ledger": ledger, "earlier": earlier}
    used = Utilisation()
    with Bar("embed", total, "texts") as bar:
        bar.advance(sum(entry.counts["rows"] for name in names if (entry := ledger.done(ledger_key(name)))))
        for row in executor.stream(missing, Pool(EmbedPart, arguments, spec.cluster.embed)):
            bar.advance(row["rows"])
            used.note(row)
    if missing:
        log(str(used))
    entries = [entry for name in names if (entry := ledger.done(ledger_key(name)))]
    rows = sum(entry.counts["rows"] for entry in entries)
    if rows != total:
        raise RuntimeError(f"{attempt.root}: got {rows} vectors for {total} texts")
    counts = {
        "vectors": rows,
        "dimension": model.dimension,
        "reused": sum(entry.counts.get("reused", 0) for entry in entries),
        "precision": sorted({entry.counts["precision"] for entry in entries}),
    }
    if draws is not None:
        counts["pseudo-queries"] = sum(entry.counts.get("pseudo-queries", 0) for entry in entries)
    return Output(counts, tuple(file for entry in entries for file in entry.files))


def check_draws(draws: PseudoQueries, spec: JobSpec, encoder: Encoder, corpus: Artifact) -> None:
    drawing = SpanDrawer(encoder.tokenizer, min(spec.encoder.max_length, encoder.longest), draws)
    judged = {split: corpus.record.counts["splits"][split]["relevant"] for split in ("train", "dev")}
    paired = spec.train.generation or judged["train"]
    spared = draws.source == "simcse" and judged["dev"]
    contrast = spec.train.type == "contrast" and draws.source != "simcse"
    if spared or (spec.train.does_without_draws and (paired or contrast)):
        return
    for name in corpus.names("documents/"):
        table = columns.read([corpus.path(name)], ["title", "text"])
        for begin in range(0, len(table), CHECKED):
            part = table.slice(begin, CHECKED)
            if drawing.yields_any(part["title"].to_pylist(), part["text"].to_pylist()):
                return
    needed = [
        *(["two sentences", "a title and a text"] if draws.has_titles else []),
        *([f"more than {draws.length} tokens of text"] if draws.has_spans else []),
    ]
    raise InputError(
        f"train.pseudo_queries: no document has {' or '.join(needed)}; allowed: another source or a shorter length"
    )


def check_numbers(name: str, ids: pa.ChunkedArray, vector_NM: Floats) -> None:
    bad = np.flatnonzero(~np.isfinite(vector_NM).all(axis=1))
    if len(bad):
        shown = ", ".join(repr(ids[row].as_py()) for row in bad[:IDS_SHOWN].tolist())
        more = ", …" if len(bad) > IDS_SHOWN else ""
        raise InputError(
            f"encoder.model: {len(bad)} of {len(vector_NM)} vectors of {name} hold NaN or infinity: {shown}{more}; "
            "allowed: weights that are numbers, and precision float32"
        )


def ledger_key(name: str) -> str:
    return name.replace("/", "-")

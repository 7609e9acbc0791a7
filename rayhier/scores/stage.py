"""Run the stages scores and factors: score chosen pairs, part by part, and learn vectors from the scores."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.documents import document_texts
from rayhier.dataset.holdout import hash_ids, held_queries
from rayhier.dataset.queries import load_queries
from rayhier.dataset.ranking import take
from rayhier.embed.encode import TextEncoder, limit_threads
from rayhier.embed.precision import as_embedded
from rayhier.executor import Executor, Pool, Row
from rayhier.model.layers import load_head
from rayhier.progress import Bar, log
from rayhier.scores.factorise import Matrix, base_scores, inductive, match, residual_bias, transductive
from rayhier.scores.factors import CONFIG, ITEMS, Learned, save_maps
from rayhier.scores.scorer import open_scorer
from rayhier.spec import InputError, JobSpec
from rayhier.spec.cross_encoder import CrossEncoderSpec, ScoresSpec
from rayhier.storage import columns, files, parquet
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import SCRATCH, Attempt, Output
from rayhier.storage.leaf_map import BUILT, LeafMap
from rayhier.storage.ledger import Ledger, LedgerEntry
from rayhier.storage.model_folder import ModelFolder
from rayhier.storage.paths import Location
from rayhier.threads import set_threads

PART = 1_024
PAIRS = pa.schema([("query", pa.int32()), ("item", pa.string()), ("text", pa.string())])
SCORES = pa.schema([("query", pa.string()), ("item", pa.string()), ("score", pa.float32())])
QUERIES = pa.schema([("query_id", pa.string()), ("kind", pa.string()), ("text", pa.string())])
SPAN_WORDS = 64
FEW = "scores.{}: got {}, but the corpus has {} {}; allowed: at most as many, or fewer judged queries and more spans"
CHOSEN = "chosen"


class ScorePart:
    def __init__(self, cross_encoder: Artifact, spec: CrossEncoderSpec, ledger: Ledger, cpus: int) -> None:
        limit_threads(cpus)
        self.ledger, self.scorer = ledger, open_scorer(cross_encoder, spec)
        table = parquet.read(ledger.root / "queries.parquet", ["query_id", "text"])
        self.ids, self.texts = (np.array(table[name].to_pylist(), dtype=object) for name in ("query_id", "text"))

    def __call__(self, item: Row) -> Iterator[Row]:
        part, root = str(item["part"]), self.ledger.root
        table = parquet.read(root / SCRATCH / "pairs" / f"{part}.parquet")
        query_P = table["query"].to_numpy()
        scores = self.scorer(self.texts[query_P].tolist(), table["text"].to_pylist())
        scored = pa.table([pa.array(self.ids[query_P], pa.string()), table["item"], pa.array(scores)], schema=SCORES)
        file = parquet.write(root, f"pairs/{part}.parquet", [scored], SCORES)
        self.ledger.enter(part, LedgerEntry((file,), {"pairs": len(table)}))
        yield {"pairs": len(table)}


def build(
    executor: Executor,
    spec: JobSpec,
    model: ModelFolder,
    corpus: Artifact,
    vectors: Artifact,
    cross_encoder: Artifact,
    attempt: Attempt,
) -> Output:
    """Choose the spec's pairs and score them. InputError if the corpus has too few queries or documents."""
    if spec.cross_encoder is None:
        raise AssertionError("planned only with cross_encoder")
    ledger = Ledger(attempt.scratch / "ledger", attempt.root)
    if (chosen := ledger.done(CHOSEN)) is None:
        counts = executor.call(_choose, spec.cluster.embed, spec, model.path, corpus, vectors, attempt.root)
        chosen = ledger.enter(CHOSEN, LedgerEntry((), counts))
    parts = [f"{number:06}" for number in range(chosen.counts["parts"])]
    missing = [part for part in parts if ledger.done(part) is None]
    about = {"spec": spec.cross_encoder, "ledger": ledger, "cpus": spec.cluster.embed.cpus}
    arguments = {"cross_encoder": cross_encoder, **about}
    pool, total = Pool(ScorePart, arguments, spec.cluster.embed), int(chosen.counts["pairs"])
    with Bar("scores", total, "pairs") as bar:
        done = (ledger.done(part) for part in parts)
        bar.advance(sum(entry.counts["pairs"] for entry in done if entry))
        for row in executor.stream([{"part": part} for part in missing], pool):
            bar.advance(row["pairs"])
    log(f"  scores: {total:,} pairs of {chosen.counts['queries']:,} queries")
    return Output({"pairs": total, "queries": int(chosen.counts["queries"])})


def _choose(spec: JobSpec, model: Path, corpus: Artifact, vectors: Artifact, root: Location) -> dict[str, int]:
    if (scores_spec := spec.scores) is None:
        raise AssertionError("planned only with scores")
    set_threads(spec.cluster.embed.cpus)
    queries = choose_queries(scores_spec, corpus, vectors)
    query_QM = _vectors(as_embedded(spec, vectors, spec.cluster.embed.gpus), model, queries, corpus, vectors)
    with_vectors = queries.append_column("vector", columns.vector_column(query_QM, pa.float32()))
    parquet.write(root, "queries.parquet", [with_vectors], with_vectors.schema)
    parts = pairs = 0
    for chosen in choose_pairs(scores_spec, query_QM, vectors):
        documents = columns.read([corpus.path(chosen.name)], ["doc_id", "title", "text"])
        ids, bodies = documents["doc_id"].to_pylist(), document_texts(documents)
        for start in range(0, len(chosen.query_P), PART):
            query_P, row_P = (numbers[start : start + PART] for numbers in (chosen.query_P, chosen.row_P))
            named = [[values[row] for row in row_P.tolist()] for values in (ids, bodies)]
            table = pa.table([pa.array(query_P, pa.int32()), *named], schema=PAIRS)
            parquet.write(root, f"{SCRATCH}/pairs/{parts:06}.parquet", [table], PAIRS)
            parts, pairs = parts + 1, pairs + len(query_P)
    return {"parts": parts, "pairs": pairs, "queries": len(queries)}


def _vectors(spec: JobSpec, model: Path, queries: pa.Table, corpus: Artifact, vectors: Artifact) -> Any:
    """Return base vectors [q, m] of the queries: stored vectors for judged queries, new vectors for spans."""
    judged = load_queries(corpus, vectors, "train")
    stored = dict(zip(judged.ids, judged.vector_QM, strict=True))
    kinds, ids = queries["kind"].to_pylist(), queries["query_id"].to_pylist()
    drawn = [text for kind, text in zip(kinds, queries["text"].to_pylist(), strict=True) if kind != "judged"]
    encoded = iter(TextEncoder(model, spec.encoder).encode(drawn, "query") if drawn else ())
    rows = [stored[name] if kind == "judged" else next(encoded) for kind, name in zip(kinds, ids, strict=True)]
    return np.stack(rows).astype(np.float32)


def build_factors(
    executor: Executor, spec: JobSpec, scores: Artifact, model: Artifact, index: Artifact, attempt: Attempt
) -> Output:
    counts = executor.call(_factorise, spec.cluster.train, spec, scores, model, index, attempt.root)
    log(f"  factors: {counts['documents']:,} documents with {counts['pairs']:,} scores")
    return Output(counts)


def _factorise(spec: JobSpec, scores: Artifact, model: Artifact, index: Artifact, root: Location) -> dict[str, int]:
    if (kind := spec.factors) is None:
        raise AssertionError("planned only with factors")
    set_threads(spec.cluster.train.cpus)
    ids, item_NM = index_vectors(index)
    queries = columns.read([scores.path("queries.parquet")], ["query_id", "text", "vector"])
    query_QM = trained_vectors(spec, model, queries)
    matrix = read_matrix(scores, queries["query_id"].combine_chunks(), ids)
    base_X = base_scores(matrix, query_QM, item_NM)
    matching, (bias_N, slope) = match(matrix, base_X), residual_bias(matrix, base_X, len(ids))
    scale = {"slope": slope, "alpha": matching.alpha, "beta": matching.beta}
    learned = Learned(model=model.folder.name, **scale, biased=True)
    count_N = np.bincount(matrix.item_X, minlength=len(ids))
    scored_S = np.flatnonzero(count_N)
    table = pa.table({"doc_id": ids.take(pa.array(scored_S)), "bias": bias_N[scored_S], "count": count_N[scored_S]})
    lessons = matrix, matching(matrix.score_X), query_QM, item_NM, kind, 0
    match kind:
        case "transductive":
            vectors = columns.vector_column(transductive(*lessons)[scored_S], pa.float32())
            table = table.append_column("vector", vectors)
        case "inductive":
            with files.filling(root / "map") as folder:
                save_maps(*inductive(*lessons), folder)
    parquet.write(root, ITEMS, [table], table.schema)
    files.write_json(root / CONFIG, learned.model_dump(mode="json"))
    return {"pairs": len(matrix), "documents": len(scored_S)}


def index_vectors(index: Artifact) -> tuple[pa.Array, Any]:
    leaf_map, tables = LeafMap.open(index.root, BUILT), []
    for shard in leaf_map.manifest.shards:
        table = leaf_map.read(shard, ["doc_id", "rank", "vector"])
        tables.append(table.filter(pc.equal(table["rank"], 0)))
    table = pa.concat_tables(tables)
    return table["doc_id"].combine_chunks(), columns.matrix(table["vector"])


def trained_vectors(spec: JobSpec, model: Artifact, queries: pa.Table) -> Any:
    folder = model.local("encoder")
    if spec.encoder.transformer_part is not None:
        return TextEncoder(folder, spec.encoder).encode(queries["text"].to_pylist(), "query")
    head, base_QM = load_head(folder), columns.matrix(queries["vector"])
    return base_QM if head is None else head(base_QM)


def read_matrix(scores: Artifact, queries: pa.Array, items: pa.Array) -> Matrix:
    """Read scored pairs as positions in `queries` and `items`. Pairs with other documents are left out."""
    table = columns.read([scores.path(name) for name in scores.names("pairs/")], ["query", "item", "score"])
    query_X, item_X = (
        pc.index_in(table[name], value_set=known_ids) for name, known_ids in (("query", queries), ("item", items))
    )
    known = pc.is_valid(item_X)
    query_X, item_X = (numbers.filter(known).to_numpy().astype(np.int64) for numbers in (query_X, item_X))
    return Matrix(query_X, item_X, table["score"].filter(known).to_numpy().astype(np.float64))


@dataclass(frozen=True)
class ChosenPairs:
    """Queries by position [p], and documents by row [p] in a file of the corpus."""

    name: str
    query_P: Ints
    row_P: Ints


def choose_queries(spec: ScoresSpec, corpus: Artifact, vectors: Artifact) -> pa.Table:
    queries = load_queries(corpus, vectors, "train")
    if len(queries) < spec.judged:
        raise InputError(FEW.format("judged", spec.judged, len(queries), "judged train queries"))
    kept_ids = set(held_queries(queries.ids, spec.judged))
    rows = [(name, "judged", text) for name, text in zip(queries.ids, queries.texts, strict=True) if name in kept_ids]
    rows += _spans(spec.spans, corpus) if spec.spans else []
    named = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.table([pa.array(list(column), pa.string()) for column in named], schema=QUERIES)


def _spans(count: int, corpus: Artifact) -> list[tuple[str, str, str]]:
    """Make a query of a span from each of the `count` documents longer than a span with the smallest hashes."""
    drawn: list[tuple[int, str, str]] = []
    for name in corpus.names("documents/"):
        table = columns.read([corpus.path(name)], ["doc_id", "text"])
        texts = [(name, _span(text)) for name, text in zip(*(column.to_pylist() for column in table), strict=True)]
        named = [(name, text) for name, text in texts if text]
        hashes = hash_ids([f"span\0{name}" for name, _ in named]).tolist()
        drawn += [(number, name, text) for number, (name, text) in zip(hashes, named, strict=True)]
        drawn = sorted(drawn)[:count]
    if len(drawn) < count:
        raise InputError(FEW.format("spans", count, len(drawn), "documents with a span"))
    return [(f"span:{name}", "span", text) for _, name, text in drawn]


def _span(text: str) -> str:
    words = text.split()
    begin = (len(words) - SPAN_WORDS) // 2
    return " ".join(words[begin : begin + SPAN_WORDS]) if len(words) > SPAN_WORDS else ""


def choose_pairs(spec: ScoresSpec, query_QM: Floats, vectors: Artifact) -> Iterator[ChosenPairs]:
    names = vectors.names("documents/")
    if spec.count == "all":
        for name in names:
            rows = columns.read([vectors.path(name)], ["doc_id"]).num_rows
            yield ChosenPairs(name, np.repeat(np.arange(len(query_QM)), rows), np.tile(np.arange(rows), len(query_QM)))
    elif spec.per == "item":
        yield from (_of_items(name, spec.count, query_QM, vectors) for name in names)
    else:
        yield from _of_queries(names, spec.count, query_QM, vectors)


def _keys(name: str, query_QM: Floats, vectors: Artifact) -> Values:
    table = columns.read([vectors.path(name)], ["vector"])
    return np.asarray(query_QM @ columns.matrix(table["vector"]).T, dtype=np.float64)


def _of_items(name: str, count: int, query_QM: Floats, vectors: Artifact) -> ChosenPairs:
    key_QN = _keys(name, query_QM, vectors)
    best_CN = np.argsort(-key_QN, axis=0, kind="stable")[:count]
    row_CN = np.broadcast_to(np.arange(key_QN.shape[1]), best_CN.shape)
    order = np.lexsort((row_CN.reshape(-1), best_CN.reshape(-1)))
    return ChosenPairs(name, best_CN.reshape(-1)[order], row_CN.reshape(-1)[order])


def _of_queries(names: Sequence[str], count: int, query_QM: Floats, vectors: Artifact) -> Iterable[ChosenPairs]:
    key_QK, file_QK, row_QK = np.zeros((len(query_QM), 0)), *np.zeros((2, len(query_QM), 0), np.int64)
    for number, name in enumerate(names):
        file_key_QN = _keys(name, query_QM, vectors)
        key_QK = np.concatenate([key_QK, file_key_QN], axis=1)
        file_QK = np.concatenate([file_QK, np.full(file_key_QN.shape, number)], axis=1)
        row_QK = np.concatenate([row_QK, np.broadcast_to(np.arange(file_key_QN.shape[1]), file_key_QN.shape)], axis=1)
        best_QK = np.argsort(-key_QK, axis=1, kind="stable")[:, :count]
        key_QK, file_QK, row_QK = take(key_QK, best_QK), take(file_QK, best_QK), take(row_QK, best_QK)
    for number, name in enumerate(names):
        query_P, place_P = np.nonzero(file_QK == number)
        yield ChosenPairs(name, query_P, row_QK[query_P, place_P])

"""Load training pairs and dev queries from the artifacts of earlier stages."""

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.neighbours import Neighbours
from rayhier.dataset.documents import Documents
from rayhier.dataset.generated import load_generated, split_generated
from rayhier.dataset.holdout import holdout_rows
from rayhier.dataset.queries import Queries, load_queries, relevant
from rayhier.spec import InputError
from rayhier.spec.train import TrainSpec
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.train.examples import Examples, joined
from rayhier.train.group import WorkerGroup

POSITIVES = 3
SIBLINGS = 16
"""Number of further neighbours to fetch, because passages of the same document are dropped."""


def count_pairs(spec: TrainSpec, corpus: Artifact, generated: Artifact | None = None) -> int:
    """Count the judged and generated (query, document) pairs. 0 if `train.objective` uses no pairs."""
    if spec.objective == "documents":
        return 0
    judged = int(corpus.record.counts["splits"]["train"]["relevant"])
    return judged if generated is None else judged + int(generated.record.counts["pairs"]["accepted"])


def has_dev(corpus: Artifact) -> bool:
    return bool(corpus.record.counts["splits"]["dev"]["relevant"])


def check_differences(vectors: Artifact) -> None:
    first_M: Floats | None = None
    for name in vectors.names("documents/"):
        shard_NM = columns.matrix(columns.read([vectors.path(name)], ["vector"])["vector"])
        first_M = shard_NM[0] if first_M is None else first_M
        if (shard_NM != first_M).any():
            return
    rows = int(vectors.record.counts["vectors"])
    raise InputError(
        f"corpus: all {rows:,} texts have equal vectors; allowed: texts that differ within encoder.max_length"
    )


def load_examples(
    spec: TrainSpec, corpus: Artifact, vectors: Artifact, documents: Documents, generated: Artifact | None = None
) -> Examples:
    """Load the pairs to train on, as `train.objective` says: judged and generated pairs, or neighbouring documents.

    Only a router that is trained with the encoder learns from neighbours. To find neighbours of n documents costs n²
    comparisons.
    """
    if count_pairs(spec, corpus, generated):
        judged = judged_pairs(load_queries(corpus, vectors, "train"), documents)
        if generated is None:
            return judged
        queries = load_generated(generated, vectors)
        learned = queries if has_dev(corpus) else split_generated(queries)[1]
        return joined(judged, judged_pairs(learned, documents))
    if spec.routes:
        return document_pairs(documents)
    none_P2 = np.empty((0, 2), dtype=np.int64)
    return Examples(documents.vector_NM, documents.vector_NM, none_P2, same=True, result_N=documents.result_N)


def judged_pairs(queries: Queries, documents: Documents) -> Examples:
    """Make training pairs from queries and the documents judged as their answers (grades above 0).

    If a document is cut into passages, the pair holds the passage nearest to the query. Other passages of the document
    may answer too, so they are never negatives.
    """
    answers = [relevant(queries.grades[query]) for query in queries.ids]
    rows: dict[str, list[int]] = {name: [] for names in answers for name in names}
    for row, name in enumerate(documents.results):
        if name in rows:
            rows[name].append(row)
    pairs, spared = [], []
    for number, names in enumerate(answers):
        for answer_rows in (rows[name] for name in names):
            pairs.append(
                (number, answer_rows[int((documents.vector_NM[answer_rows] @ queries.vector_QM[number]).argmax())])
            )
            spared += [(number, row) for row in answer_rows]
    pair_P2, spared_S2 = (np.array(entries, dtype=np.int64).reshape(-1, 2) for entries in (pairs, spared))
    return Examples(
        queries.vector_QM, documents.vector_NM, pair_P2, queries.texts, spared_S2=spared_S2, result_N=documents.result_N
    )


def document_pairs(documents: Documents) -> Examples:
    """Make pairs of each document, as a query, with its three nearest documents. Dev documents are left out."""
    training_N = np.setdiff1d(np.arange(len(documents.ids)), holdout_rows(documents.ids))
    if len(training_N) < 2:
        training_N = np.arange(len(documents.ids))
    result_N = None if documents.result_N is None else documents.result_N[training_N]
    near = others(documents.vector_NM[training_N], result_N, np.arange(len(training_N)), POSITIVES)
    pairs = np.stack([np.repeat(training_N, POSITIVES), training_N[near.reshape(-1)]], axis=1)
    return Examples(
        documents.vector_NM, documents.vector_NM, pairs[near.reshape(-1) >= 0], same=True, result_N=documents.result_N
    )


def others(vectors_NM: Floats, result_N: Ints | None, rows: Ints, count: int) -> Ints:
    """For each of `rows`, find the nearest rows of other documents: [r, count], -1 for none.

    `result_N` [n] numbers the document of each row. None if each row is a document.
    """
    if result_N is None:
        return neighbours(vectors_NM, rows, count)
    near = neighbours(vectors_NM, rows, count + SIBLINGS)
    near[result_N[near] == result_N[rows][:, None]] = -1
    order = np.argsort(near < 0, axis=1, kind="stable")[:, :count]
    return np.asarray(np.take_along_axis(near, order, axis=1))


def neighbours(vectors_NM: Floats, rows: Ints, count: int) -> Ints:
    """Find the exact nearest other vectors [r, count] of each vector at `rows`. -1 for none."""
    documents = Neighbours(vectors_NM)
    (near,) = WorkerGroup().spread(lambda some_N: (documents.search(vectors_NM[some_N], count + 1)[0],), rows)
    itself = near == rows[:, None]
    # Equal vectors can push a row out of its own list. Then the last neighbour is dropped instead.
    itself[~itself.any(axis=1), -1] = True
    return np.asarray(near[~itself].reshape(len(rows), count))

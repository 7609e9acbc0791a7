"""Training pairs and dev queries from published artifacts."""

from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq

from rayhier.evaluate.data import Documents, held_out, load_queries, neighbours
from rayhier.evaluate.measures import Queries
from rayhier.spec.train import TrainSpec
from rayhier.storage import columns, schemas
from rayhier.storage.artifact import Artifact
from rayhier.train.examples import Examples

POSITIVES = 3


def load_examples(spec: TrainSpec, corpus: Artifact, vectors: Artifact, documents: Documents) -> Examples:
    """Judged pairs, or every document with its nearest neighbours, as `train.objective` says."""
    queries = load_queries(corpus, vectors, "train")
    supervised = spec.objective == "supervised" or (spec.objective == "auto" and queries.answered)
    return judged_pairs(queries, documents, load_parents(corpus)) if supervised else document_pairs(documents)


def load_parents(corpus: Artifact) -> list[str] | None:
    """The parent of every row, in the order of the corpus; None where documents are not cut into passages."""
    paths = [corpus.path(name) for name in corpus.names("documents/")]
    if not paths or schemas.PARENT.name not in pq.read_schema(paths[0]).names:
        return None
    parents: list[str] = columns.read(paths, [schemas.PARENT.name])[schemas.PARENT.name].to_pylist()
    return parents


def judged_pairs(queries: Queries, documents: Documents, parents: Sequence[str] | None = None) -> Examples:
    """Every (query, document) judged above zero; of a document in passages, the one nearest to the query.

    Nearest under the base encoder: only a part of a long document need answer, and nobody said which. Its other
    passages are spared, as they may answer too.
    """
    relevant = [[name for name, grade in queries.grades[query].items() if grade > 0] for query in queries.ids]
    rows: dict[str, list[int]] = {name: [] for names in relevant for name in names}
    for row, name in enumerate(documents.ids if parents is None else parents):
        if name in rows:
            rows[name].append(row)
    pairs, spared = [], []
    for number, names in enumerate(relevant):
        for own in (rows[name] for name in names):
            pairs.append((number, own[int((documents.vector_NM[own] @ queries.vector_QM[number]).argmax())]))
            spared += [(number, row) for row in own]
    pair_P2, spared_S2 = (np.array(found, dtype=np.int64).reshape(-1, 2) for found in (pairs, spared))
    kept = None if parents is None else spared_S2
    return Examples(queries.vector_QM, documents.vector_NM, pair_P2, queries.texts, spared_S2=kept)


def document_pairs(documents: Documents) -> Examples:
    """Documents as queries for their three nearest others; nothing held out is on either side.

    Of so few that fewer than two would be left, none is held out.
    """
    kept = np.setdiff1d(np.arange(len(documents.ids)), held_out(documents.ids))
    if len(kept) < 2:
        kept = np.arange(len(documents.ids))
    near = neighbours(documents.vector_NM[kept], np.arange(len(kept)), POSITIVES)
    pairs = np.stack([np.repeat(kept, POSITIVES), kept[near.reshape(-1)]], axis=1)
    return Examples(documents.vector_NM, documents.vector_NM, pairs[near.reshape(-1) >= 0], same=True)

"""Training pairs and dev queries from published artifacts."""

import numpy as np

from rayhier.evaluate.data import Documents, held_out, load_queries, neighbours
from rayhier.evaluate.measures import Queries
from rayhier.spec.train import TrainSpec
from rayhier.storage.artifact import Artifact
from rayhier.train.examples import Examples

POSITIVES = 3


def load_examples(spec: TrainSpec, corpus: Artifact, vectors: Artifact, documents: Documents) -> Examples:
    """Judged pairs, or every document with its nearest neighbours, as `train.objective` says."""
    queries = load_queries(corpus, vectors, "train")
    supervised = spec.objective == "supervised" or (spec.objective == "auto" and queries.answered)
    return judged_pairs(queries, documents) if supervised else document_pairs(documents)


def judged_pairs(queries: Queries, documents: Documents) -> Examples:
    """Every (query, document) judged above zero; of a document in passages, the one nearest to the query.

    Its other passages are not brought to the query, but are no negatives either.
    """
    rows: dict[str, list[int]] = {}
    for number, document in enumerate(documents.results):
        rows.setdefault(document, []).append(number)
    pairs, spared = [], []
    for number, query in enumerate(queries.ids):
        for document, grade in queries.grades[query].items():
            if grade > 0:
                own = np.array(rows[document])
                best = own[(documents.vector_NM[own] @ queries.vector_QM[number]).argmax()] if len(own) > 1 else own[0]
                pairs.append((number, best))
                spared += [(number, row) for row in own if row != best]
    pair_P2, spared_S2 = (np.array(found, dtype=np.int64).reshape(-1, 2) for found in (pairs, spared))
    return Examples(
        queries.vector_QM, documents.vector_NM, pair_P2, queries.texts, spared_S2=spared_S2, copies=documents.copies
    )


def document_pairs(documents: Documents) -> Examples:
    """Documents as queries for their three nearest others; nothing held out is on either side.

    Of so few that fewer than two would be left, none is held out.
    """
    kept = np.setdiff1d(np.arange(len(documents.ids)), held_out(documents.ids))
    if len(kept) < 2:
        kept = np.arange(len(documents.ids))
    near = neighbours(documents.vector_NM[kept], np.arange(len(kept)), POSITIVES)
    pairs = np.stack([np.repeat(kept, POSITIVES), kept[near.reshape(-1)]], axis=1)
    return Examples(
        documents.vector_NM, documents.vector_NM, pairs[near.reshape(-1) >= 0], same=True, copies=documents.copies
    )

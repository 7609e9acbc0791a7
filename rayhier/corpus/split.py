"""Choose the split of a query by a hash if its source has no splits. The choice is the same on every machine."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rayhier.corpus.row_checks import Judgement
from rayhier.dataset.families import alike, normal, some
from rayhier.dataset.holdout import hash_ids

DEV = 0.1
TEST = 0.1
Counts = dict[str, Any]


def cut(
    train: Sequence[Judgement], texts: Mapping[str, str], share: float = DEV
) -> tuple[list[Judgement], list[Judgement], Counts]:
    """Move about a share of the train queries, and their judgements, to another split.

    Families of queries that ask the same stay together. Returns train, the other split, and counts of families.
    """
    answers: dict[str, list[str]] = {judgement.query_id: [] for judgement in train}
    for judgement in train:
        if judgement.grade > 0:
            answers[judgement.query_id].append(judgement.doc_id)
    asked = [texts[query] for query in answers]
    family_Q, shared = alike(asked, list(answers.values()))
    count = len(np.unique(family_Q))
    moved_Q = some(family_Q, asked, max(1, int(len(asked) * share))) & (count > 1)
    other = {query for query, moved in zip(answers, moved_Q.tolist(), strict=True) if moved}
    rows = [[judgement for judgement in train if (judgement.query_id in other) == moved] for moved in (False, True)]
    return rows[0], rows[1], {"families": count, "shared": shared if count < len(asked) else "nothing"}


def assign(texts: Mapping[str, str]) -> dict[str, str]:
    """Choose the split of each query by a hash: 80% train, 10% dev, 10% test. Equal texts stay together."""
    first: dict[str, str] = {}
    keys = [first.setdefault(normal(text), query) for query, text in texts.items()]
    place_Q = np.digitize(hash_ids(keys) / 2.0**64, [DEV, DEV + TEST])
    return {query: ("dev", "test", "train")[place] for query, place in zip(texts, place_Q.tolist(), strict=True)}

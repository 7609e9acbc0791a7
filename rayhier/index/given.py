"""Documents as a request gives them: checked like a corpus, made into rows that can be encoded and put into leaves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats
from rayhier.corpus import check
from rayhier.corpus.check import Entry, RowError, Rules, beginning
from rayhier.corpus.passages import DocumentLayout
from rayhier.index.incoming import LENGTH
from rayhier.spec import InputError
from rayhier.spec.corpus import CorpusSpec


@dataclass(frozen=True)
class GivenDocuments:
    """Checked documents: their rows in the corpus's columns, and vectors where these were given."""

    table: pa.Table
    ids: list[str]
    """Id of each document, in their order."""
    vector_NM: Floats | None
    """Vectors [n, m] of the rows; None: they are to be encoded."""


def given_documents(
    documents: Sequence[Mapping[str, Any]], corpus: CorpusSpec, dimension: int, *, unit: bool
) -> GivenDocuments:
    """Check documents with the keys `id`, `title`, `text`, `fields` and `vector`.

    All have a vector, as the trained encoder makes them, or none has; with `unit` it must have length 1. InputError
    names the document that is refused, and the reason.
    """
    layout, names = DocumentLayout.of(corpus), corpus.row_columns
    rules = Rules(corpus.limits, names, layout.fields)
    entries, places = list[Entry](), dict[str, int]()
    for place, document in enumerate(documents):
        entry = _entry(document, rules, place)
        if entry.key in places:
            raise InputError(
                f"documents[{place}].id: got {beginning(entry.key)!r}, which documents[{places[entry.key]}] has too; "
                "allowed: each id once; nothing was changed"
            )
        places[entry.key] = place
        entries.append(entry)
    vectors = [document.get("vector") for document in documents]
    has = [vector is not None for vector in vectors]
    if any(has) and layout.passages is not None:
        raise InputError(
            f"documents[{has.index(True)}].vector: documents of this index are cut into passages; allowed: no vectors"
        )
    if any(has) and not all(has):
        raise InputError(f"documents[{has.index(False)}].vector: got none; allowed: for all documents, or for none")
    vector_NM = _matrix(vectors, dimension, unit=unit) if any(has) else None
    return GivenDocuments(layout.table(entries), list(places), vector_NM)


def _entry(document: Mapping[str, Any], rules: Rules, place: int) -> Entry:
    names, fields = rules.columns, document.get("fields") or {}
    for name in fields:
        if name not in rules.fields:
            allowed = ", ".join(rules.fields) or "none: this corpus declares no fields"
            raise InputError(f"documents[{place}].fields: got {beginning(name)!r}; allowed: {allowed}")
    row = {names.id: document.get("id"), names.title: document.get("title"), names.text: document.get("text"), **fields}
    try:
        entry = check.document(row, rules)
    except RowError as error:
        raise InputError(
            f"documents[{place}]: {error.reason}; allowed: documents as in the corpus; nothing was changed"
        ) from None
    if entry.cut:
        most = f"{rules.limits.title:,} characters of title and {rules.limits.text:,} of text"
        raise InputError(f"documents[{place}]: text too long; allowed: {most}, corpus.limits; nothing was changed")
    return entry


def _matrix(vectors: Sequence[Any], dimension: int, *, unit: bool) -> Floats:
    for place, vector in enumerate(vectors):
        if len(vector) != dimension:
            raise InputError(f"documents[{place}].vector: got {len(vector)} numbers; allowed: {dimension}")
    vector_NM = np.array(vectors, dtype=np.float32)  # lists or arrays
    lengths = np.linalg.norm(vector_NM, axis=1)
    if unit and (wrong := np.flatnonzero(np.abs(lengths - 1) > LENGTH)).size:
        place = int(wrong[0])
        raise InputError(
            f"documents[{place}].vector: of length {lengths[place]:.4g}; allowed: unit vectors, as the encoder makes "
            "them for cosine"
        )
    return vector_NM

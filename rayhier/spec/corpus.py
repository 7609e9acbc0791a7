"""`corpus:` where documents, queries and judgements come from."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.section import Section


class Limits(Section):
    """Longest accepted field, in characters. Longer titles and texts are cut and counted."""

    title: Annotated[int, Field(ge=1)] = 1_000
    """Longest title."""
    text: Annotated[int, Field(ge=1)] = 100_000
    """Longest document or query text."""
    id: Annotated[int, Field(ge=1)] = 512
    """Longest id. A longer one is rejected: cut, it would no longer be the id."""


class Beir(Section):
    """A BEIR folder: `corpus.jsonl`, `queries.jsonl`, `qrels/{train,dev,test}.tsv`."""

    type: Literal["beir"]
    path: Annotated[str, Field(min_length=1)]
    """The folder, relative to the current directory."""
    limits: Limits = Limits()
    """Longest accepted fields."""


class PythonDocs(Section):
    """Docstrings of the running Python's standard library: query = summary line, document = the rest."""

    type: Literal["python_docs"]
    limits: Limits = Limits()
    """Longest accepted fields."""


CorpusSpec = Annotated[Beir | PythonDocs, Field(discriminator="type")]

"""`corpus:` where documents, queries and judgements come from."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rayhier.spec.section import Section

Text = Annotated[str, Field(min_length=1)]
FieldType = Literal["int", "float", "string", "bool"]
RESERVED = ("doc_id", "title", "text", "parent", "leaf", "rank", "leaves", "log_prob", "vector", "score")
"""Columns of documents and of the leaf map, which no declared field may be called."""


def _free(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name):
        raise ValueError("a name of at most 64 letters, digits and _, a letter first")
    if name in RESERVED:
        raise ValueError(f"a name other than {', '.join(RESERVED)}")
    return name


FieldName = Annotated[str, AfterValidator(_free)]


class Limits(Section):
    """Longest accepted field, in characters. Longer titles and texts are cut and counted."""

    title: Annotated[int, Field(ge=1)] = 1_000
    """Longest title."""
    text: Annotated[int, Field(ge=1)] = 100_000
    """Longest document or query text."""
    id: Annotated[int, Field(ge=1)] = 512
    """Longest id. A longer one is rejected: cut, it would no longer be the id."""


class Passages(Section):
    """Documents cut into windows of words: each becomes a document of its own that knows its parent."""

    words: Annotated[int, Field(ge=1)]
    """Longest passage, in words as blanks divide them. A document of no more stays one passage."""
    stride: Annotated[int, Field(ge=1)]
    """Words from the beginning of one passage to that of the next; at most `words`, so that none is lost."""

    @model_validator(mode="after")
    def _cover(self) -> Self:
        if self.stride > self.words:
            raise ValueError(f"a stride of at most words ({self.words}): a longer one leaves words out")
        return self

    def starts(self, words: int) -> range:
        """The first word of each passage of a document of so many words, until its last word is in one.

        >>> Passages(words=3, stride=2).starts(6)
        range(0, 5, 2)
        """
        last = -(-max(0, words - self.words) // self.stride)
        return range(0, last * self.stride + 1, self.stride)


class Columns(Section):
    """Names of the columns, or keys of a JSON object, that hold a document; queries have `id` and `text` too."""

    id: Text = "id"
    """Text or a whole number, which becomes text."""
    title: Text = "title"
    """May be missing."""
    text: Text = "text"
    """What is encoded, after the title."""


class Judgements(Section):
    """One file, or one id, a split. Without dev, a tenth of the train queries becomes dev."""

    train: Text | None = None
    """Trains the index."""
    dev: Text | None = None
    """Picks the best epoch."""
    test: Text | None = None
    """Measures."""


class _Corpus(Section):
    """What every source has."""

    type: str
    """Which of the sources it is."""
    limits: Limits = Limits()
    """Longest accepted fields."""
    passages: Passages | None = None
    """Cut longer documents into passages; none: a document is a row."""

    @property
    def names_judgements(self) -> bool:
        """Whether it says, or implies, where judgements lie. Without any, nothing is evaluated."""
        return True


class _WithFields(_Corpus):
    """A source whose rows may have more than id, title and text."""

    fields: dict[FieldName, FieldType] = Field(default_factory=dict)
    """Typed columns to carry beside the text, by name: int, float, string or bool. One that is missing is null."""


class _Listed(_WithFields):
    """A user's own files."""

    documents: Text
    """A file, a folder of such files, or a pattern of files; relative to the current directory."""
    queries: Text | None = None
    """The same, of queries."""
    judgements: Judgements = Judgements()
    """Which documents answer which queries."""
    columns: Columns = Columns()
    """What the columns are called."""

    @property
    def names_judgements(self) -> bool:
        """Whether it names a file of judgements."""
        return self.judgements != Judgements()

    @model_validator(mode="after")
    def _asked(self) -> Self:
        if self.queries is None and self.names_judgements:
            raise ValueError("judgements only together with queries, whose ids they name")
        return self


class Beir(_WithFields):
    """A BEIR folder: `corpus.jsonl`, `queries.jsonl`, `qrels/{train,dev,test}.tsv`."""

    type: Literal["beir"]
    path: Text
    """The folder, relative to the current directory."""


class Jsonl(_Listed):
    """Your own JSON lines: one object a document, one a query.

    A file of judgements has lines of query id, document id and a whole number (above 0: relevant), split by tabs;
    BEIR's header may come first.
    """

    type: Literal["jsonl"]


class Parquet(_Listed):
    """Your own parquet files: one row a document, one a query.

    Judgements are the tab-separated files of `jsonl`, or `.parquet` with the columns query-id, corpus-id and score.
    """

    type: Literal["parquet"]


class MsMarco(_Corpus):
    """MS MARCO's passages as published: a folder of tab-separated files.

    `collection.tsv` (id, text), `queries.SPLIT.tsv` (id, text), `qrels.SPLIT.tsv` (query id, 0, passage id, grade).
    Test judgements were never published, so dev is measured on: `test` reads `dev.small` where there is one, else
    `dev`, and dev is cut from train. Where there is a `qrels.test.tsv`, test and dev are what they are called.
    """

    type: Literal["msmarco"]
    path: Text
    """The folder, relative to the current directory."""


class IrDatasets(_Corpus):
    """A data set of the package ir_datasets, downloaded where it is not on this machine."""

    type: Literal["ir_datasets"]
    dataset: Text
    """Its id, for instance beir/scifact. Its splits are found by name: /train, /dev or /validation, /test."""
    splits: Judgements = Judgements()
    """Ids whose queries and judgements to take instead; given one, only those given are read."""


class HuggingFace(_WithFields):
    """A data set in BEIR's layout on the Hugging Face hub, or the same in a folder. No code of its own is run."""

    type: Literal["huggingface"]
    path: Text
    """Hub id, for instance BeIR/scifact, or a folder."""
    revision: Text | None = None
    """Commit, tag or branch on the hub; a commit is read without asking which one is newest."""
    documents_config: Text = "corpus"
    """The configuration (subset) that holds the documents."""
    queries_config: Text = "queries"
    """The configuration that holds the queries."""
    judgements: Text | None = None
    """Hub id or folder of the judgements (query-id, corpus-id, score), one split each; none: PATH-qrels."""
    judgements_revision: Text | None = None
    """Its commit, tag or branch."""
    judgements_config: Text | None = None
    """Its configuration, where it has more than one."""
    columns: Columns = Columns(id="_id")
    """What the columns are called."""

    @property
    def qrels(self) -> str:
        """Hub id or folder of the judgements."""
        return self.judgements or f"{self.path.rstrip('/')}-qrels"


class PythonDocs(_Corpus):
    """Docstrings of the running Python's standard library: query = summary line, document = the rest."""

    type: Literal["python_docs"]


CorpusSpec = Annotated[
    Beir | Jsonl | Parquet | MsMarco | IrDatasets | HuggingFace | PythonDocs, Field(discriminator="type")
]
Listed = Beir | Jsonl | Parquet | MsMarco
"""Sources that are a set of files."""

"""`corpus:` the source of documents, queries and judgements."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rayhier.spec.base import Section

Text = Annotated[str, Field(min_length=1)]
FieldType = Literal["int", "float", "string", "bool"]
Language = Literal[
    "none", "arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch", "english", "esperanto", "estonian",
    "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian",
    "nepali", "norwegian", "persian", "polish", "portuguese", "romanian", "russian", "serbian", "sesotho", "spanish",
    "swedish", "tamil", "turkish", "yiddish",
]  # fmt: skip
"""Languages of Snowball's stemmers. With `none`, words are counted as they are."""
RESERVED = (
    *("doc_id", "title", "text", "parent", "leaf", "rank", "leaves", "log_prob", "vector", "score"),
    *("and", "or", "not"),
)
"""Names that no declared field may have: columns of documents and of the leaf map, and words of filters."""


def _free(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name):
        raise ValueError("a name of at most 64 letters, digits and _ that begins with a letter")
    if name in RESERVED:
        raise ValueError(f"a name other than {', '.join(RESERVED)}")
    return name


FieldName = Annotated[str, AfterValidator(_free)]


@dataclass(frozen=True)
class Limits:
    """Longest accepted titles, texts and ids, in characters. Longer titles and texts are cut and counted."""

    title: int = 1_000
    text: int = 100_000
    id: int = 512
    """A row with a longer id is rejected, because a cut id would name another row."""


LIMITS = Limits()


class Passages(Section):
    """Rule that cuts documents into passages, windows of words, which are indexed one by one."""

    words: Annotated[int, Field(ge=1)]
    """Most words of a passage. Words are split at blanks. A document with no more words stays one passage."""
    stride: Annotated[int, Field(ge=1)]
    """Words from the start of a passage to the start of the next; at most `words`, so that no word is left out."""

    @model_validator(mode="after")
    def _cover(self) -> Self:
        if self.stride > self.words:
            raise ValueError(f"a stride of at most words ({self.words}): a longer one leaves words out")
        return self

    def starts(self, words: int) -> range:
        """Return the positions, from 0, of the first words of the passages of a document of `words` words.

        The last passage has the document's last word.

        >>> Passages(words=3, stride=2).starts(6)
        range(0, 5, 2)
        """
        last = -(-max(0, words - self.words) // self.stride)
        return range(0, last * self.stride + 1, self.stride)


class ColumnNames(Section):
    """Names of the columns, or keys of a JSON object, that hold a document's id, title and text."""

    id: Text = "id"
    """Name of the column of ids: text, or whole numbers, which become text."""
    title: Text = "title"
    """Name of the column of titles. The column may be missing."""
    text: Text = "text"
    """Name of the column of texts. A document's text is encoded after its title."""


class Judgements(Section):
    """Judgements of each split: a file, or an ir_datasets id. Without dev, a tenth of the train queries becomes dev."""

    train: Text | None = None
    """Judgements to train on: a file, or an id of ir_datasets. null: none."""
    dev: Text | None = None
    """Judgements by which training picks its best epoch. null: those of a tenth of the train queries."""
    test: Text | None = None
    """Judgements for the final evaluation. null: none."""

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.train is not None and self.train in (self.dev, self.test):
            raise ValueError("files of their own for dev and test, with queries that training never saw")
        return self


class _Corpus(Section):
    """Settings that all kinds of sources share."""

    type: str
    """Kind of the source, for instance beir or jsonl."""
    language: Language | Literal["auto"] = "auto"
    """Language by which BM25 reduces words to their stems. `none`: words are counted as they are. `auto`: detected
    by the frequent words of 23 languages. It is `none` if the texts are in another language, or in several."""

    @property
    def names_judgements(self) -> bool:
        """Return True if the source may have judgements, which an evaluation needs, as far as the spec tells."""
        return True

    @property
    def limits(self) -> Limits:
        return LIMITS

    @property
    def in_lines(self) -> bool:
        """Return True if documents and queries are lines of text files; False for a source of parquet files."""
        return True

    @property
    def row_columns(self) -> ColumnNames:
        """Names of the columns (JSON keys) of a document in the source's files, and in a file of documents to add."""
        return ColumnNames()

    @property
    def row_query_columns(self) -> ColumnNames:
        """Names of the columns (JSON keys) of a query in the source's files."""
        return self.row_columns

    @property
    def field_types(self) -> dict[str, FieldType]:
        """Types of the declared fields, name -> type; empty for a source that cannot have such fields."""
        return {}


class _Cut(_Corpus):
    """A source whose documents may be cut into passages."""

    passages: Passages | None = None
    """Sizes of the passages that longer documents are cut into. null: documents are not cut."""


def passages_of(spec: _Corpus) -> Passages | None:
    """Return the sizes of the passages that longer documents are cut into. None: documents are not cut."""
    return spec.passages if isinstance(spec, _Cut) else None


class _WithFields(_Cut):
    """A source whose rows may have typed fields besides id, title and text."""

    fields: dict[FieldName, FieldType] = Field(default_factory=dict)
    """Declared fields: further columns that the index keeps for filters, name -> type (int, float, string or bool); a
    missing value is null."""

    @property
    def field_types(self) -> dict[str, FieldType]:
        return self.fields


class OwnFiles(_WithFields):
    """A corpus in your own files: a row for each document and each query, as JSON lines, CSV or parquet.

    A file of judgements has lines of query id, document id and a whole number (above 0: relevant), separated by tabs;
    BEIR's header line may come first. With `parquet` it may be a `.parquet` file with the columns query-id, corpus-id
    and score. The first line of a CSV file names its columns.
    """

    type: Literal["jsonl", "parquet", "csv"]
    """Format of the files of documents and queries. `csv` also reads `.tsv` files."""
    documents: Text
    """Files of the documents: a file, a folder of files, or a pattern such as `data/*.jsonl`; relative to the current
    directory."""
    queries: Text | None = None
    """Files of the queries: a file, a folder of files, or a pattern, relative to the current directory. null: no
    queries."""
    judgements: Judgements = Judgements()
    """Files that say which documents answer which queries."""
    columns: ColumnNames = ColumnNames()
    """Names of the documents' columns or JSON keys."""
    query_columns: ColumnNames | None = None
    """Names of the queries' columns or JSON keys, `id` and `text`. null: those of `columns`."""

    @property
    def names_judgements(self) -> bool:
        return self.judgements != Judgements()

    @property
    def in_lines(self) -> bool:
        return self.type != "parquet"

    @property
    def row_columns(self) -> ColumnNames:
        return self.columns

    @property
    def row_query_columns(self) -> ColumnNames:
        return self.query_columns or self.columns

    @model_validator(mode="after")
    def _asked(self) -> Self:
        if self.queries is None and self.names_judgements:
            raise ValueError("judgements with queries, whose ids they name; without queries set judgements=null too")
        if self.query_columns is not None and self.query_columns.changed("title"):
            raise ValueError("query_columns with id and text: a query has no title")
        return self


class Beir(_WithFields):
    """A corpus in a folder of BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/{train,dev,test}.tsv`."""

    type: Literal["beir"]
    path: Text
    """Folder of the files, relative to the current directory."""

    @property
    def row_columns(self) -> ColumnNames:
        return ColumnNames(id="_id")


class MsMarco(_Corpus):
    """MS MARCO's passages as published: a folder of tab-separated files.

    `collection.tsv` (id, text), `queries.SPLIT.tsv` (id, text), `qrels.SPLIT.tsv` (query id, 0, passage id, grade).
    Test judgements were never published. So split `test` reads the files of `dev.small`, or of `dev` where those are
    missing, and split `dev` is cut from train. With a `qrels.test.tsv`, `test` and `dev` read their own files.
    """

    type: Literal["msmarco"]
    path: Text
    """Folder of the files, relative to the current directory."""


class IrDatasets(_Cut):
    """A data set of the Python package ir_datasets. Downloaded if it is not on this machine."""

    type: Literal["ir_datasets"]
    dataset: Text
    """Id of the data set, for instance beir/scifact. Splits are found by name: /train, /dev or /validation, /test."""
    splits: Judgements = Judgements()
    """Ids of the data sets that hold the splits; where an id is given, only splits with an id are read. Without ids,
    splits are found by name below `dataset`."""


class HuggingFace(_Cut):
    """A data set in BEIR's layout, on the Hugging Face hub or in a folder. Code inside the data set is never run."""

    type: Literal["huggingface"]
    path: Text
    """Hub id of the data set, for instance BeIR/scifact (`@REVISION`: a commit, tag or branch), or a folder. A full
    commit hash is used without asking the hub for the newest commit."""
    judgements: Text | None = None
    """Hub id (`@REVISION`) or folder of the judgements: columns query-id, corpus-id and score, a split for each of
    train, dev and test. null: the id or folder `path`, without a revision, with `-qrels` added."""

    @property
    def qrels(self) -> str:
        """Hub id or folder of the judgements."""
        return self.judgements or f"{self.path.partition('@')[0].rstrip('/')}-qrels"

    @property
    def row_columns(self) -> ColumnNames:
        return ColumnNames(id="_id")


class TextFiles(_Cut):
    """A folder of text files, UTF-8 (`.txt`, `.md`, `.rst`): each is a document, whose id is its path in the folder.

    Its title is its first line where that is a heading of Markdown (`# …`), else the file's name.
    """

    type: Literal["text"]
    path: Text
    """Folder, read with the folders in it but for hidden ones, relative to the current directory. Links are not
    followed."""

    @property
    def names_judgements(self) -> bool:
        return False


class PythonDocs(_Corpus):
    """Docstrings of the running Python's standard library: the first sentence is a query, the rest is its answer."""

    type: Literal["python_docs"]


CorpusSpec = Annotated[
    Beir | OwnFiles | MsMarco | IrDatasets | HuggingFace | TextFiles | PythonDocs, Field(discriminator="type")
]
FileCorpus = Beir | OwnFiles | MsMarco
"""Kinds of sources that are read from files on this machine."""

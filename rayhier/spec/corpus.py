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
"""Languages of Snowball's stemmers. With `none`, words are counted unchanged."""
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


LIMITS = Limits()


class Passages(Section):
    """Sizes of passages. Long documents are cut into passages, which are windows of words, and indexed one by one."""

    words: Annotated[int, Field(ge=1)]
    """Largest number of words of a passage. Words are split at blanks. A document with no more words stays one
    passage."""
    stride: Annotated[int, Field(ge=1)]
    """Words between the starts of two neighbouring passages. At most `words`, so that no word is left out."""

    @model_validator(mode="after")
    def _cover(self) -> Self:
        if self.stride > self.words:
            raise ValueError(f"at most words ({self.words}), as a longer stride leaves words out")
        return self

    def starts(self, words: int) -> range:
        """Return the positions, from 0, of the first words of the passages of a document of `words` words.

        The last passage contains the document's last word.

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
    """Judgements of each split: a file or an ir_datasets id. Without dev, a tenth of the train queries becomes dev."""

    train: Text | None = None
    """Judgements to train on: a file, or an id of ir_datasets. `null`: none."""
    dev: Text | None = None
    """Judgements by which training picks its best epoch. `null`: a tenth of the train queries becomes dev."""
    test: Text | None = None
    """Judgements for the final evaluation. `null`: none."""

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.train is not None and self.train in (self.dev, self.test):
            raise ValueError("different files for train, dev and test, so that training reads no query of dev and test")
        return self


class _Corpus(Section):
    """Settings that sources of all types share."""

    type: str
    """Type of the source, for instance beir or jsonl."""
    language: Language | Literal["auto"] = "auto"
    """Language by which BM25 reduces words to their stems. `none`: words are counted unchanged. `auto`: one of 23
    languages, detected by frequent words. `auto` is `none` for texts in other languages, or in several."""

    @property
    def names_judgements(self) -> bool:
        """Return False if the source certainly has no judgements. An evaluation needs judgements."""
        return True

    @property
    def limits(self) -> Limits:
        return LIMITS

    @property
    def row_columns(self) -> ColumnNames:
        """Names of the columns (JSON keys) of a document, in the source's files and in files of documents to add."""
        return ColumnNames()

    @property
    def row_query_columns(self) -> ColumnNames:
        """Names of the columns (JSON keys) of a query in the source's files."""
        return self.row_columns

    @property
    def field_types(self) -> dict[str, FieldType]:
        """Types of the declared fields, name -> type. Empty if the source cannot have such fields."""
        return {}


class _Cut(_Corpus):
    """A source whose documents may be cut into passages."""

    passages: Passages | None = None
    """Sizes of the passages that long documents are cut into. `null`: documents are not cut."""


def passages_of(spec: _Corpus) -> Passages | None:
    """Return the sizes of the passages that long documents are cut into. None if documents are not cut."""
    return spec.passages if isinstance(spec, _Cut) else None


class _WithFields(_Cut):
    """A source whose rows may have typed fields besides id, title and text."""

    fields: dict[FieldName, FieldType] = Field(default_factory=dict)
    """Declared fields: further columns that the index keeps for filters, as `NAME: TYPE`. Types are int, float, string
    and bool. A missing value is null."""

    @property
    def field_types(self) -> dict[str, FieldType]:
        return self.fields


class _Asked(_Cut):
    """A source whose queries and judgements are your own files.

    A line of a judgements file has a query id, a document id and a whole number, separated by tabs. It may also have
    TREC's four columns. A number above 0 means relevant. BEIR's header line may come first. A `.csv` or `.parquet` file
    has the columns query-id, corpus-id and score.
    """

    queries: Text | None = None
    """Files of the queries, relative to the current directory: a file, a folder, or a pattern. Names tell the format:
    `.jsonl`, `.csv`, `.tsv` or `.parquet`. `null`: no queries."""
    judgements: Judgements = Judgements()
    """Files that say which documents answer which queries."""
    query_columns: ColumnNames | None = None
    """Names of the queries' columns or JSON keys, `id` and `text`. `null`: the same names as of documents."""

    @property
    def names_judgements(self) -> bool:
        return self.judgements != Judgements()

    @property
    def row_query_columns(self) -> ColumnNames:
        return self.query_columns or self.row_columns

    @model_validator(mode="after")
    def _both(self) -> Self:
        if self.queries is None and self.names_judgements:
            raise ValueError("judgements with queries, whose ids they name. Without queries, set judgements=null")
        if self.query_columns is not None and self.query_columns.changed("title"):
            raise ValueError("query_columns with id and text, as a query has no title")
        return self


class OwnFiles(_Asked, _WithFields):
    """A corpus in your own files, with a row for each document, as JSON lines, CSV or parquet."""

    type: Literal["jsonl", "parquet", "csv"]
    """Format of the files of documents. `csv` also reads `.tsv` files. The first line of a CSV file names its
    columns."""
    documents: Text
    """Files of the documents, relative to the current directory: a file, a folder, or a pattern like `data/*.jsonl`."""
    columns: ColumnNames = ColumnNames()
    """Names of the documents' columns or JSON keys."""

    @property
    def row_columns(self) -> ColumnNames:
        return self.columns


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

    `collection.tsv` (id, text), `queries.SPLIT.tsv` (id, text), `qrels.SPLIT.tsv` (query id, 0, passage id, grade). If
    there is a `qrels.test.tsv`, each split reads the files of its name. MS MARCO published no test judgements. Without
    this file, split `test` reads the files of `dev.small`, or else of `dev`, and split `dev` is cut from train.
    """

    type: Literal["msmarco"]
    path: Text
    """Folder of the files, relative to the current directory."""


class IrDatasets(_Cut):
    """A data set of the Python package ir_datasets, which is downloaded if it is not on this machine."""

    type: Literal["ir_datasets"]
    dataset: Text
    """Id of the data set, for instance beir/scifact. Splits are found by name: /train, /dev or /validation, /test."""
    splits: Judgements = Judgements()
    """Ids of the data sets that hold the splits. If you give an id, only splits with an id are read. Without ids,
    splits are found by name below `dataset`."""


class HuggingFace(_Cut):
    """A data set in BEIR's layout, on the Hugging Face hub or in a folder. Code inside the data set is never run."""

    type: Literal["huggingface"]
    path: Text
    """Hub id of the data set, for instance BeIR/scifact, or a folder. `@REVISION` after the id names a commit, tag or
    branch. A full commit hash is used without a question to the hub about the newest commit."""
    judgements: Text | None = None
    """Hub id (`@REVISION`) or folder of the judgements, with the columns query-id, corpus-id and score and splits
    train, dev and test. `null`: `path` without a revision, with `-qrels` added."""

    @property
    def qrels(self) -> str:
        return self.judgements or f"{self.path.partition('@')[0].rstrip('/')}-qrels"

    @property
    def row_columns(self) -> ColumnNames:
        return ColumnNames(id="_id")


class TextFiles(_Asked):
    """A folder of UTF-8 text files (`.txt`, `.md`, `.rst`). Each is a document, whose id is its path in the folder.

    The title is the file's first line if the line is a heading of Markdown (`# …`), else the file's name.
    """

    type: Literal["text"]
    path: Text
    """Folder, relative to the current directory. Folders inside are read too, but not hidden folders or links."""


class PythonDocs(_Corpus):
    """Docstrings of this Python's standard library. The first sentence is a query, and the rest is its answer."""

    type: Literal["python_docs"]


CorpusSpec = Annotated[
    Beir | OwnFiles | MsMarco | IrDatasets | HuggingFace | TextFiles | PythonDocs, Field(discriminator="type")
]
FileCorpus = Beir | OwnFiles | MsMarco | TextFiles
"""Kinds of sources that are read from files on this machine."""

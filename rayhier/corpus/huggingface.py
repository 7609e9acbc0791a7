"""Reader of data sets in BEIR's layout on the Hugging Face hub or in a folder, streamed without a second copy.

No code of a data set is run.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayhier.corpus import check
from rayhier.corpus.check import Entry, Judgement, RowSchema
from rayhier.corpus.rows import Stream, checked
from rayhier.spec import InputError
from rayhier.spec.corpus import HuggingFace
from rayhier.storage import hub_data

DOCUMENTS, QUERIES = "corpus", "queries"
"""Names of the configurations (subsets) of documents and queries. Judgements have only one."""
NAMES = {"train": ("train",), "dev": ("dev", "validation", "val"), "test": ("test",)}


@dataclass(frozen=True)
class Repository:
    key: str
    path: str
    commit: str | None
    """Commit hash on the hub. None for a folder."""

    @classmethod
    def find(cls, key: str, path: str) -> "Repository":
        """Find the folder `path`, or else the data set of that name on the hub. InputError where neither exists.

        The hub is asked even if the commit is known: a silent hub fails here at once, in `datasets` only after many
        attempts.
        """
        folder: Path | None = hub_data.folder(key, path)
        if folder is not None:
            return cls(key, str(folder), None)
        return cls(key, path.partition("@")[0], hub_data.ask(key, path))

    def load(self, config: str | None) -> Mapping[str, Any]:
        try:
            import datasets
        except ImportError:
            raise InputError(
                f"corpus.type: huggingface needs a package that is not installed: {hub_data.EXTRA}"
            ) from None
        datasets.disable_progress_bars()
        datasets.logging.set_verbosity(logging.CRITICAL)
        try:
            loaded: Mapping[str, Any] = datasets.load_dataset(self.path, config, revision=self.commit, streaming=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise self._refusal(config, error) from None
        return loaded

    def rows(self, config: str | None, loaded: Any) -> Iterator[dict[str, Any]]:
        import datasets

        try:
            yield from loaded
        except (OSError, RuntimeError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise self._refusal(config, error) from None

    def _refusal(self, config: str | None, error: Exception) -> InputError:
        message = " ".join(str(error).split())[:300]
        return InputError(f"{self.key}: {self.path}, configuration {config or 'default'}, cannot be read: {message}")


@dataclass(frozen=True)
class HubReader:
    texts: Repository
    qrels: Repository
    schema: RowSchema

    def documents(self) -> Stream[Entry]:
        named = ("id", "text") if self.schema.columns.title == "title" else ("id", "title", "text")
        rows = self._rows(DOCUMENTS, named, self.schema.fields)
        return Stream(DOCUMENTS, checked(rows, self.schema.document))

    def queries(self) -> Iterator[Stream[Entry]]:
        rows = self._rows(QUERIES, ("id", "text"), {})
        yield Stream(QUERIES, checked(rows, self.schema.query))

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:
        loaded = self.qrels.load(None)
        for name in NAMES[split]:
            if name in loaded:
                yield Stream(f"qrels {name}", checked(self.qrels.rows(None, loaded[name]), check.judgement_row))
                return

    def _rows(self, config: str, columns: tuple[str, ...], fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield rows of every split of a configuration. InputError if the first row of a split lacks a column."""
        wanted = dict.fromkeys((getattr(self.schema.columns, name) for name in columns), "corpus.path")
        wanted |= {name: f"corpus.fields.{name}" for name in fields}
        for split in self.texts.load(config).values():
            for number, row in enumerate(self.texts.rows(config, split)):
                for name, key in wanted.items() if number == 0 else ():
                    if name not in row:
                        present = ", ".join(list(row)[:20])
                        raise InputError(
                            f"{key}: {self.texts.path} has no column {name!r} in {config}; allowed: {present}"
                        )
                yield row


def reader(spec: HuggingFace) -> HubReader:
    """Make the reader of the data sets that a spec names. InputError if one is missing or the hub is silent."""
    texts = Repository.find("corpus.path", spec.path)
    qrels = Repository.find("corpus.judgements", spec.qrels)
    return HubReader(texts, qrels, RowSchema(spec.limits, spec.row_columns, {}))

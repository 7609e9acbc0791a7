"""Reader of a folder of text files: a document a file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rayhier.corpus import check
from rayhier.corpus.check import Entry, Judgement, Reason, RowError, Rules
from rayhier.corpus.rows import Stream, checked
from rayhier.spec import InputError
from rayhier.spec.corpus import Columns, Limits, TextFiles
from rayhier.storage import listing
from rayhier.storage.listing import NamedFile


@dataclass(frozen=True)
class TextReader:
    """Reader of the files of a folder, which has neither queries nor judgements."""

    files: tuple[NamedFile, ...]
    limits: Limits

    def documents(self) -> Stream[Entry]:
        return Stream("documents", checked(self.files, self._document))

    def queries(self) -> Iterator[Stream[Entry]]:
        return iter(())

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:  # noqa: ARG002  as every reader's
        """Stream no judgements."""
        return iter(())

    def _document(self, file: NamedFile) -> Entry:
        if file.path.is_symlink():
            raise RowError(Reason.LINK)
        try:
            with file.path.open("rb") as opened:
                content = opened.read(check.LONGEST_LINE + 1)
        except OSError as error:
            raise InputError(f"corpus.path: {file.path} cannot be read: {error.strerror}") from None
        title, text = titled(check.decode(content), file.path)
        if not text:
            raise RowError(Reason.EMPTY_TEXT)
        return check.document({"id": file.name, "title": title, "text": text}, Rules(self.limits, Columns(), {}))


def reader(spec: TextFiles) -> TextReader:
    """Make the reader of the folder that a spec names; InputError where it has no text file."""
    return TextReader(listing.texts(spec), spec.limits)


def titled(text: str, path: Path) -> tuple[str, str]:
    r"""Divide a file's text into title and rest: a heading of Markdown, or else the file's name stands for the title.

    >>> titled("# Pruning\n\nCut back.", Path("a.md"))
    ('Pruning', 'Cut back.')
    >>> titled("Cut back.", Path("apple_trees.txt"))
    ('apple trees', 'Cut back.')
    """
    first, _, rest = text.lstrip().partition("\n")
    if first.startswith("# ") and rest.strip():
        return first[2:].strip(), rest.strip()
    return path.stem.replace("_", " ").replace("-", " "), text.strip()

"""Reader of a user's own files of JSON lines: a file, a folder, or a pattern of files."""

from rayhier.corpus.check import Rules
from rayhier.corpus.lines import LinesReader, json_lines
from rayhier.spec.corpus import OwnFiles
from rayhier.storage import listing


def reader(spec: OwnFiles) -> LinesReader:
    """Make the reader of the files that a spec names; InputError where a file is missing."""
    return json_lines(listing.find(spec), Rules(spec.limits, spec.columns, spec.fields, spec.row_query_columns))

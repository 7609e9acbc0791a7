"""Reader of MS MARCO's passages in the tab-separated files they were published in."""

from rayhier.corpus import check
from rayhier.corpus.check import Entry, Judgement, RowError, Rules
from rayhier.corpus.lines import Format, LinesReader, table
from rayhier.spec.corpus import Columns, MsMarco
from rayhier.storage import listing

QRELS = "query id, 0, passage id and grade, split by tabs or blanks"


def reader(spec: MsMarco) -> LinesReader:
    """Make the reader of MS MARCO's files in the spec's folder; InputError where a file is missing."""
    rules = Rules(spec.limits, Columns(), {})

    def document(row: list[str]) -> Entry:
        return check.document({"id": row[0], "text": row[1]}, rules)

    def query(row: list[str]) -> Entry:
        return check.query({"id": row[0], "text": row[1]}, rules)

    return LinesReader(
        listing.find(spec),
        table(2, "id, text", document),
        table(2, "id, text", query),
        Format(judgement, f"4 columns: {QRELS}"),
    )


def judgement(line: bytes) -> Judgement:
    """Parse a line of a TREC qrels file, ignoring its second column; RowError unless the line has four columns."""
    columns = check.decode(line).split()
    if len(columns) != 4:
        raise RowError(check.Reason.WRONG_COLUMNS)
    return check.judgement(columns[0], columns[2], columns[3])

"""Rows: each is accepted, rejected with its reason, or none at all."""

import json

from hypothesis import given
from hypothesis import strategies as st

from rayhier.corpus import lines, reader, row_checks
from rayhier.corpus.row_checks import Judgement, Reason, Rejection, RowSchema
from rayhier.spec.corpus import Columns, Limits

SCHEMA = RowSchema(Limits(), Columns(), {})
VALID = st.builds(
    lambda key, text: json.dumps({"id": key, "text": text}).encode(), st.sampled_from("abc"), st.text(max_size=5)
)


def entries(raw):
    parsed = reader.checked(lines.rows(raw), lambda line: SCHEMA.document(row_checks.json_row(line)))
    return reader.collect(reader.distinct(parsed, set()))


def judgements(raw, queries=("q",), documents=("d", "e")):
    return reader.collect(reader.known(iter(raw), queries, documents, set()))


def refused(parsed):
    return [(line, one.reason, one.value) for line, one in parsed.rejected]


def test_judgements_of_seven_lines():
    one, wrong = Judgement("q", "d", 1), Rejection(Reason.WRONG_TYPE, "q d one")
    raw = [None, one, None, Judgement("q", "d", 2), Judgement("q", "e", 0), Judgement("x", "d", 1), wrong]
    parsed = judgements([*raw, Judgement("q", "x", 1)])
    assert (parsed.lines, parsed.read) == (8, 6)
    assert parsed.accepted == [(2, one), (5, Judgement("q", "e", 0))]
    assert refused(parsed) == [
        (4, Reason.DUPLICATE_JUDGEMENT, "q d 2"),
        (6, Reason.UNKNOWN_QUERY, "x d 1"),
        (7, Reason.WRONG_TYPE, "q d one"),
        (8, Reason.UNKNOWN_DOCUMENT, "q x 1"),
    ]


@given(st.lists(st.binary(max_size=30) | VALID))
def test_accepted_and_rejected_are_all_that_was_read(raw):
    raw = [line + b"\n" for line in raw]
    parsed = entries(raw)
    numbers = [line for line, _ in parsed.accepted] + [line for line, _ in parsed.rejected]
    assert sorted(numbers) == [n for n, line in enumerate(raw, 1) if not line.isspace()]
    assert parsed.read == len(numbers)
    keys = [one.key for _, one in parsed.accepted]
    assert len(set(keys)) == len(keys)

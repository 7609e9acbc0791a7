"""Which rows a filter lets through, against a predicate in plain Python on one row."""

import operator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rayhier.search.segment.filter import matching
from rayhier.spec.filter import as_json, parse
from rayhier.storage.schemas import FIELDS

TYPES = {"year": "int", "price": "float", "lang": "string", "open": "bool"}
VALUES = {
    "year": st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
    "price": st.floats(-2, 2) | st.integers(-2, 2) | st.just(1e308),
    "lang": st.sampled_from(["", "a", "b", "ä", "€", "😀", "ab", "\x00"]),
    "open": st.booleans(),
}
COMPARE = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()}), max_size=12)


@st.composite
def conditions(draw):
    name = draw(st.sampled_from(sorted(VALUES)))
    value = VALUES[name]
    kinds = {"in": st.lists(value, min_size=1, max_size=4), "exists": st.booleans()}
    if name != "open":
        kinds |= dict.fromkeys(COMPARE, value)
    chosen = draw(st.sets(st.sampled_from(sorted(kinds)), min_size=1))
    compared = st.fixed_dictionaries({kind: kinds[kind] for kind in sorted(chosen)})
    return {name: draw(value | compared)}


def joined(inner):
    several = st.lists(inner, min_size=1, max_size=3)
    together = st.lists(conditions(), min_size=1, max_size=3).map(
        lambda parts: {k: v for p in parts for k, v in p.items()}
    )
    return (
        st.fixed_dictionaries({"and": several})
        | st.fixed_dictionaries({"or": several})
        | st.fixed_dictionaries({"not": inner})
        | together
    )


FILTERS = st.recursive(conditions(), joined, max_leaves=8)


def holds(where, row):
    """Whether one row meets a filter as it is written: JSON, a dict."""

    def key(name, value):
        if name == "and":
            return all(holds(part, row) for part in value)
        if name == "or":
            return any(holds(part, row) for part in value)
        if name == "not":
            return not holds(value, row)
        if not isinstance(value, dict):
            return row[name] is not None and row[name] == value
        return all(condition(row[name], kind, given) for kind, given in value.items())

    return all(key(name, value) for name, value in where.items())


def condition(has, kind, given):
    if kind == "exists":
        return given is (has is not None)
    if has is None:
        return False
    return has in given if kind == "in" else COMPARE[kind](has, given)


@given(FILTERS, ROWS)
def test_rows_are_those_of_a_predicate(where, rows):
    table = pa.table({name: pa.array([row[name] for row in rows], FIELDS[kind]) for name, kind in TYPES.items()})
    parsed = parse(where, TYPES)
    assert parse(as_json(parsed), TYPES) == parsed
    found = matching(table, parsed)
    assert found.dtype == bool
    assert found.tolist() == [holds(where, row) for row in rows]

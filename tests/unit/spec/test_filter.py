"""Filters as written, and every mistake by its place, what was given and what is allowed."""

import json

import pytest

from rayhier.spec import InputError
from rayhier.spec.filter import DEEPEST, MOST_VALUES, YAML_WORDS, And, Bound, Exists, Not, OneOf, Or, parse, parse_json

TYPES = {"year": "int", "price": "float", "lang": "string", "open": "bool"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"year": 2021}, OneOf("year", (2021,))),
        ({"year": {"gte": 2019, "lt": 2022}}, And((Bound("year", "gte", 2019), Bound("year", "lt", 2022)))),
        ({"lang": {"in": ["en", "de"]}}, OneOf("lang", ("en", "de"))),
        ({"price": {"exists": True}}, Exists("price", there=True)),
        ({"open": False, "lang": "en"}, And((OneOf("open", (False,)), OneOf("lang", ("en",))))),
        ({"or": [{"year": {"gt": 1}}, {"not": {"lang": ""}}]}, Or((Bound("year", "gt", 1), Not(OneOf("lang", ("",)))))),
    ],
)
def test_as_written(given, wanted):
    assert parse(given, TYPES) == parse_json(json.dumps(given), TYPES) == wanted
    assert hash(parse(given, TYPES)) == hash(wanted)


def test_a_specs_true_is_text_that_only_a_bool_takes():
    given = {"open": "true", "lang": {"in": ["true"], "exists": "false"}}
    wanted = (OneOf("open", (True,)), And((OneOf("lang", ("true",)), Exists("lang", there=False))))
    assert parse(given, TYPES, words=YAML_WORDS) == And(wanted)
    for refused in ({"open": "true"}, {"lang": {"exists": "true"}}):
        with pytest.raises(InputError, match='got "true"; allowed: true or false'):
            parse(refused, TYPES)


def nested(levels):
    given = {"year": 1}
    for _ in range(levels):
        given = {"not": given}
    return given


REFUSED = {
    "no object": ([1], "filter: got a list of 1; allowed: an object with one key or more"),
    "empty": ({}, "filter: got an empty object; allowed: an object with one key or more"),
    "undeclared": ({"and": [{"year": 1}, {"yeer": 2}]}, "filter.and[1].yeer: got no declared field; allowed: "),
    "of a wrong type": ({"and": [{"lang": "x"}, {"year": "x"}]}, 'filter.and[1].year: got "x"; allowed: a whole'),
    "a bool is no number": ({"year": True}, "filter.year: got true; allowed: a whole number"),
    "65 bits": ({"year": 2**63}, f"filter.year: got {2**63}; allowed: a whole number of 64 bits"),
    "infinity": ({"price": {"lt": float("inf")}}, "filter.price.lt: got Infinity; allowed: a finite number"),
    "half a character": ({"lang": "\ud800"}, r'filter.lang: got "\ud800"; allowed: Unicode text'),
    "a number is no bool": ({"open": 1}, "filter.open: got 1; allowed: true or false"),
    "equal to null": ({"lang": None}, "filter.lang: got null; allowed: Unicode text, or {exists: false} for a missing"),
    "an order of bools": ({"open": {"gt": False}}, 'filter.open: got key "gt"; allowed: in, exists, on a field'),
    "in, one of a wrong type": ({"year": {"in": [1, None]}}, "filter.year.in[1]: got null; allowed: a whole number"),
    "beyond every float": ({"price": 10**400}, "filter.price: got a huge number; allowed: a finite number"),
    "no comparison": ({"year": {}}, "filter.year: got an empty object; allowed: a value, or some of gt, gte, lt, lte"),
    "in nothing": ({"year": {"in": []}}, "filter.year.in: got an empty list; allowed: a list of one or more values"),
    "or of nothing": ({"or": []}, "filter.or: got an empty list; allowed: a list of one filter or more"),
    "too deep": (nested(100), f"not: got not below {DEEPEST} others; allowed: at most {DEEPEST} levels"),
    "deep beyond all recursion": (nested(100_000), f"allowed: at most {DEEPEST} levels"),
    "too many values": ({"lang": {"in": ["x"] * 10_000}}, "filter.lang.in: got 10,000 values; allowed: at most 1,000"),
    "too many in sum": ({"or": [{"year": {"in": [1] * 999}}, {"price": {"gt": 1, "lt": 2}}]}, "or[1].price.lt: got"),
    "too many conditions": ({"or": [{"year": {"exists": True}}] * 10_000}, "filter.or[1000].year.exists: got one"),
    "a long name": ({"x" * 500: 1}, f"filter.{'x' * 59}…: got no declared field"),
    "a name that moves the cursor": ({"\x1b[2J": 1}, r"filter.\u001b[2J: got no declared field"),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(given, said):
    with pytest.raises(InputError) as error:
        parse(given, TYPES)
    assert said in str(error.value)
    assert len(str(error.value)) < 300


def test_the_most_is_allowed_and_the_name_of_the_place_is_the_callers():
    assert parse(nested(DEEPEST), TYPES)
    assert parse({"lang": {"in": ["x"] * MOST_VALUES}}, TYPES)
    with pytest.raises(InputError, match=r"^evaluate\.filter\.year: got no declared field; .* declares no fields"):
        parse({"year": 1}, {}, "evaluate.filter")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{year: 1}", "filter: got text that is not JSON (Expecting property name"),
        ('{"year": 1, "year": 2}', 'filter: got key "year" twice in one object; allowed: each key once'),
        ('{"not":' * 100_000, "filter: got objects nested too deep; allowed: at most 16 levels"),
        ('{"year": 1e400}', "filter.year: got Infinity; allowed: a whole number"),
        (f'{{"year": {"9" * 5000}}}', "text that is not JSON"),
    ],
)
def test_text_that_is_no_filter(text, said):
    with pytest.raises(InputError) as error:
        parse_json(text, TYPES)
    assert said in str(error.value)

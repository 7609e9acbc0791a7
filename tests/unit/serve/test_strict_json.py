"""What a body holds is counted before it is parsed: the count is checked against the parsed value itself."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayhier.serve.errors import ApiError
from rayhier.serve.http import body as reader
from rayhier.serve.http.body import DEEPEST, parse

TEXTS = st.text(alphabet=',:[]{}"\\ab\né', max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


def weight(value):
    """Values in a value, itself included; an empty list or object counts twice."""
    if not isinstance(value, (list, dict)):
        return 1
    inner = value.values() if isinstance(value, dict) else value
    return 1 + (sum(map(weight, inner)) if value else 1)


def depth(value):
    if not isinstance(value, (list, dict)):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)


@given(VALUES, st.booleans())
def test_values_are_counted_exactly_whatever_texts_hold(value, ascii_only):
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parse(body, weight(value)) == value
    if weight(value) > 1:
        with pytest.raises(ApiError, match=f"body: got about {weight(value)} values; allowed: {weight(value) - 1}"):
            parse(body, weight(value) - 1)


@given(VALUES)
def test_depth_is_counted_exactly(value):
    for _ in range(DEEPEST - depth(value)):
        value = [value]
    assert parse(json.dumps(value).encode(), 10_000) == value
    with pytest.raises(ApiError, match=f"body: JSON nested {DEEPEST + 1} deep; allowed: {DEEPEST}"):
        parse(json.dumps([value]).encode(), 10_000)


REFUSED = {
    "a key twice": (b'{"a": 1, "b": {}, "a": 1}', 422, "body: got key 'a' more than once"),
    "a key twice inside": (b'[{"a": {"b": 1, "b": 2}}]', 422, "body: got key 'b' more than once"),
    "a key twice, half a character": (rb'{"\ud800": 1, "\ud800": 1}', 422, r"got key '\\ud800'"),
    "latin-1": ('{"a": "é"}'.encode("latin-1"), 400, "body: byte 7 is not UTF-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), 400, "body: byte 0 is not UTF-8"),
    "a number of 5000 digits": (b'{"k": 1' + b"0" * 5_000 + b"}", 422, "more than 4300 digits"),
    "half": (b'{"a": ', 422, "body: not JSON: Expecting value at character 6"),
    "two": (b"{} {}", 422, "body: not JSON: Extra data at character 3"),
}


@pytest.mark.parametrize(("body", "status", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_strict_json(body, status, said):
    with pytest.raises(ApiError, match=said) as caught:
        parse(body, 100)
    assert caught.value.status == status


@pytest.mark.parametrize("value", ['""', "1", "[]", "{}", "[1]", r'"\""'])
@pytest.mark.parametrize("around", ["[%s]", '{"queries": [%s]}', '{"vector": [%s'])
def test_a_million_values_are_never_parsed(monkeypatch, value, around):
    monkeypatch.setattr(reader.json, "loads", lambda *_, **__: pytest.fail("parsed"))
    body = (around % ",".join([value] * (3_900_000 // (len(value) + 1)))).encode()
    with pytest.raises(ApiError, match=r"body: got about \d{6,} values; allowed: 50000") as caught:
        parse(body, 50_000)
    assert caught.value.status == 413


def test_commas_in_texts_do_not_count():
    value = {"queries": [',"[{' * 2_500] * 64}
    assert parse(json.dumps(value).encode(), 100) == value


def test_keys_are_counted_but_not_those_in_texts():
    body = json.dumps({f"k{number}": "a:b" for number in range(100)}).encode()
    assert len(parse(body, 1_000, 100)) == 100
    with pytest.raises(ApiError, match="body: got about 100 keys; allowed: 99") as caught:
        parse(body, 1_000, 99)
    assert caught.value.status == 413

"""Filters of a search: conditions on the fields that a corpus declares, as JSON.

    | {"year": 2021}                              the field has this value
    | {"year": {"gte": 2019, "lt": 2022}}         bounds, inclusive and exclusive: gte and lte, gt and lt
    | {"lang": {"in": ["en", "de"]}}              one of these values
    | {"price": {"exists": true}}                 the document has the field (false: it does not)
    | {"and": [{…}, …]}, {"or": [{…}, …]}, {"not": {…}}

All keys of an object must hold. A missing value meets only `exists: false`, and so it meets each `not`.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rayhier.spec.corpus import FieldType
from rayhier.spec.errors import InputError

DEEPEST = 16
"""Largest number of levels of `and`, `or` and `not` that a filter may nest."""
MOST_VALUES = 1_000
"""Largest number of values in all conditions of a filter together. An `exists` counts as one value."""
SHOWN = 60
"""Largest number of characters of a filter's value that an error message repeats."""

JSON_WORDS: Mapping[str, bool] = {}
"""Texts that mean true and false in a filter written as JSON: none, as JSON has true and false."""
YAML_WORDS: Mapping[str, bool] = {"true": True, "false": False}
"""Texts that mean true and false in a filter inside a spec, because the spec's YAML reader leaves both as text."""
HUGE = 512
"""Bits of a whole number from which error messages no longer write the number."""

Value = int | float | str | bool
Comparison = Literal["gt", "gte", "lt", "lte"]
COMPARISONS: tuple[Comparison, ...] = ("gt", "gte", "lt", "lte")
VALUES: dict[FieldType, str] = {
    "int": "a whole number of 64 bits",
    "float": "a finite number",
    "string": "Unicode text",
    "bool": "true or false",
}
"""Allowed values of each field type, as error messages name them."""


@dataclass(frozen=True)
class OneOf:
    """Condition that a document's field has one of some values."""

    field: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Bound:
    """Condition that a document's field lies above or below a value. Texts are compared by their code points."""

    field: str
    comparison: Comparison
    value: Value


@dataclass(frozen=True)
class Exists:
    """Condition that a document has a value of the field (`there` True), or has none (False)."""

    field: str
    there: bool


@dataclass(frozen=True)
class And:
    """Condition that all of its parts hold."""

    parts: "tuple[Filter, ...]"


@dataclass(frozen=True)
class Or:
    """Condition that at least one of its parts holds."""

    parts: "tuple[Filter, ...]"


@dataclass(frozen=True)
class Not:
    """Condition that its part does not hold."""

    part: "Filter"


Filter = OneOf | Bound | Exists | And | Or | Not


def parse(
    given: Any, fields: Mapping[str, FieldType], name: str = "filter", words: Mapping[str, bool] = JSON_WORDS
) -> Filter:
    """Read a filter over declared fields from parsed JSON. `words` are texts that mean true or false.

    `name` denotes the filter in error messages. Raises InputError that names the place in the filter, the wrong value
    and the allowed values.

    >>> parse({"year": {"gte": 2019, "lt": 2022}}, {"year": "int"})
    And(parts=(Bound(field='year', comparison='gte', value=2019), Bound(field='year', comparison='lt', value=2022)))
    """
    return _Reader(fields, words).read(given, name, 0)


def as_json(where: Filter) -> dict[str, Any]:
    """Convert a filter to the JSON value that `parse` reads.

    >>> as_json(And((OneOf("year", (2021,)), Not(Exists("lang", there=True)))))
    {'and': [{'year': 2021}, {'not': {'lang': {'exists': True}}}]}
    """
    match where:
        case And(parts):
            return {"and": [as_json(part) for part in parts]}
        case Or(parts):
            return {"or": [as_json(part) for part in parts]}
        case Not(part):
            return {"not": as_json(part)}
        case OneOf(field, values):
            return {field: values[0] if len(values) == 1 else {"in": list(values)}}
        case Bound(field, comparison, value):
            return {field: {comparison: value}}
        case Exists(field, present):
            return {field: {"exists": present}}


def fields_of(where: Filter) -> set[str]:
    match where:
        case And(parts) | Or(parts):
            return {field for part in parts for field in fields_of(part)}
        case Not(part):
            return fields_of(part)
        case _:
            return {where.field}


def parse_json(text: str, fields: Mapping[str, FieldType], name: str = "filter") -> Filter:
    """Read a filter from JSON text. InputError if the text is not JSON, or not a filter over the declared fields."""
    try:
        parsed = json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, name))
    except RecursionError:
        raise _refused(name, "objects nested too deep", f"at most {DEEPEST} levels") from None
    except InputError:
        raise
    except ValueError as error:
        raise _refused(name, f"text that is not JSON ({error})", 'for instance {"year": 2021}') from None
    return parse(parsed, fields, name)


class _Reader:
    """Reads one filter and counts its values, of which a filter may have at most MOST_VALUES."""

    def __init__(self, fields: Mapping[str, FieldType], words: Mapping[str, bool]) -> None:
        self.fields, self.words, self.values = fields, words, 0

    def read(self, json_value: Any, place: str, depth: int) -> Filter:
        if not isinstance(json_value, dict) or not json_value:
            raise _refused(place, _show(json_value), "an object with one key or more")
        return _all(self.key(str(key), value, place, depth) for key, value in json_value.items())

    def key(self, key: str, json_value: Any, place: str, depth: int) -> Filter:
        place_of_key = f"{place}.{_cut(key)}"
        if key in ("and", "or", "not") and depth == DEEPEST:
            raise _refused(place, f"{key} below {DEEPEST} others", f"at most {DEEPEST} levels of and, or, not")
        match key:
            case "not":
                return Not(self.read(json_value, place_of_key, depth + 1))
            case "and" | "or":
                if not isinstance(json_value, list) or not json_value:
                    raise _refused(place_of_key, _show(json_value), "a list of one filter or more")
                parts = tuple(
                    self.read(part, f"{place_of_key}[{number}]", depth + 1) for number, part in enumerate(json_value)
                )
                return And(parts) if key == "and" else Or(parts)
        if key not in self.fields:
            declared = ", ".join(self.fields) or "none, as the corpus declares no fields"
            raise _refused(place_of_key, "no declared field", f"and, or, not; fields: {declared}")
        return self.conditions(key, json_value, place_of_key)

    def conditions(self, field: str, json_value: Any, place: str) -> Filter:
        """Read conditions on a declared field: a value, or an object of comparisons that must all hold."""
        if not isinstance(json_value, dict):
            return OneOf(field, (self.value(field, json_value, place),))
        allowed = ("in", "exists") if self.fields[field] == "bool" else (*COMPARISONS, "in", "exists")
        if not json_value:
            raise _refused(place, _show(json_value), f"a value, or some of {', '.join(allowed)}")
        for name in json_value:
            if name not in allowed:
                raise _refused(
                    place, f"key {_show(name)}", f"{', '.join(allowed)}, on a field of type {self.fields[field]}"
                )
        return _all(self.condition(field, name, value, f"{place}.{name}") for name, value in json_value.items())

    def condition(self, field: str, name: str, json_value: Any, place: str) -> Filter:
        if name == "exists":
            self.count(1, place)
            truth = self.truth(json_value)
            if truth is None:
                raise _refused(place, _show(json_value), VALUES["bool"])
            return Exists(field, truth)
        if name == "in":
            if not isinstance(json_value, list) or not json_value:
                raise _refused(
                    place, _show(json_value), f"a list of one or more values, each {VALUES[self.fields[field]]}"
                )
            self.count(len(json_value), place)
            return OneOf(field, tuple(self.typed(field, value, f"{place}[{n}]") for n, value in enumerate(json_value)))
        (comparison,) = (comparison for comparison in COMPARISONS if comparison == name)
        return Bound(field, comparison, self.value(field, json_value, place))

    def value(self, field: str, json_value: Any, place: str) -> Value:
        self.count(1, place)
        return self.typed(field, json_value, place)

    def typed(self, field: str, value: Any, place: str) -> Value:
        """Return a value of the field's type. InputError if `value` has another type."""
        try:
            match self.fields[field]:
                case "int" if type(value) is int and -(2**63) <= value < 2**63:
                    return value
                case "float" if type(value) in (int, float) and math.isfinite(value):
                    return float(value)
                case "string" if isinstance(value, str) and value.encode() is not None:
                    return value
                case "bool" if (truth := self.truth(value)) is not None:
                    return truth
        except (OverflowError, UnicodeEncodeError):
            pass  # a whole number that no float can hold, or half a character (a surrogate)
        missing = ", or {exists: false} for a missing value" if value is None else ""
        raise _refused(place, _show(value), f"{VALUES[self.fields[field]]}{missing}")

    def truth(self, value: Any) -> bool | None:
        return value if isinstance(value, bool) else self.words.get(value) if isinstance(value, str) else None

    def count(self, more: int, place: str) -> None:
        self.values += more
        if self.values > MOST_VALUES:
            got = f"{more:,} values" if more > 1 else "one more value"
            raise _refused(place, got, f"at most {MOST_VALUES:,} values in a filter")


def _all(parts: Iterable[Filter]) -> Filter:
    filters = tuple(parts)
    return filters[0] if len(filters) == 1 else And(filters)


def _once(pairs: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    """Build an object of JSON. InputError if a key comes twice, as the first value would be lost."""
    keys = dict[str, Any]()
    for key, value in pairs:
        if key in keys:
            raise _refused(name, f"key {_show(key)} twice in one object", "each key once")
        keys[key] = value
    return keys


def _refused(place: str, got: str, allowed: str) -> InputError:
    return InputError(f"{place}: got {got}; allowed: {allowed}")


def _show(value: Any) -> str:
    """Write a wrong value as short text. Lists and objects may be nested deep, so only their size is written."""
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "a list"
        return f"{kind} of {len(value):,}" if value else f"an empty {kind.split()[1]}"
    if isinstance(value, int) and value.bit_length() > HUGE:
        return "a huge number"  # too many digits for Python to write them
    return "null" if value is None else _cut(json.dumps(value, ensure_ascii=not str(value).isprintable()))


def _cut(text: str) -> str:
    shown = text if text.isprintable() else json.dumps(text)[1:-1]
    return shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"

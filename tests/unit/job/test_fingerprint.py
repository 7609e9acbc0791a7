"""Equal parts make one fingerprint, other parts another."""

import re

import pytest

from rayhier.job.plan import fingerprint


def test_key_order_does_not_count():
    assert fingerprint(a={"x": 1, "y": [2]}, b=3) == fingerprint(b=3, a={"y": [2], "x": 1})


def test_everything_else_does():
    parts = [{"a": 1}, {"a": 2}, {"b": 1}, {"a": "1"}, {"a": [1]}, {"a": None}, {"a": {"b": 1}}, {}]
    assert len({fingerprint(**part) for part in parts}) == len(parts)


def test_twelve_hex_digits():
    assert re.fullmatch("[0-9a-f]{12}", fingerprint(text="λ"))


def test_what_no_file_can_say_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        fingerprint(a=float("nan"))

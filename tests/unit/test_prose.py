"""The check of prose finds what it looks for, and leaves code, tables and shapes alone."""

from ..prose import of_module, of_page

LONG = "word " * 23
PAGE = f"""# Title

It stands beside a table; it finds .81 where it is new.

{LONG}

| a; b | .81 |
|---|---|

    code; .81 where
"""
MODULE = f'''"""Return a map.

Shapes: N documents; {LONG}
"""


def number_of_words(text):
    """Return the number of words."""
    raise ValueError(f"{{text}} has no words; give it a few")


MOST = 3
"""Most of them; a limit."""
'''


def rules(found):
    return [(line, rule) for line, rule, _ in found]


def test_pages():
    first = [(3, rule) for rule in ("semicolon", "say `if`", "banned word", "number without 0")]
    assert rules(of_page(PAGE)) == [*first, (5, "23 words")]


def test_modules():
    repeated, of_value, message = (8, "repeats the name"), (13, "semicolon"), (9, "semicolon")
    assert rules(of_module(MODULE)) == [of_value, repeated, message]

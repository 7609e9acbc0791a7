"""Docstrings as a corpus."""

import pytest

from rayhier.corpus import python_docs
from rayhier.corpus.row_checks import Reason
from rayhier.spec.corpus import Limits

LIMITS = Limits()
REST = "What follows is long enough to be worth the finding."
MODULE = f'''"""Do one thing. {REST}"""

class Thing:
    """A thing
    of two lines.

    {REST} Really.
    """

    async def act(self):
        """Act."""

if True:
    def choose():
        """Choose once. {REST} First."""
else:
    def choose():
        """Choose otherwise. {REST} Second."""

def repeat():
    """Another summary. {REST.upper()}"""

def quote():
    """Quote this. To {{}} is to say: QUOTE  this, and nothing but that, I tell you."""

def short():
    """Short one. Not much."""

def outer():
    def inner():
        """Sit inside. {REST} Inside."""
'''


@pytest.fixture
def library(tmp_path):
    (tmp_path / "package" / "tests").mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").write_text(MODULE)
    (tmp_path / "package" / "tests" / "test_it.py").write_text(MODULE)
    (tmp_path / "not-a-module.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "nul.py").write_bytes(b"\0")
    (tmp_path / "warns.py").write_text('x = "\\d"\n')
    return tmp_path


def test_a_small_library(library):
    found = python_docs.pairs(library, LIMITS)
    assert [(one.key, query.text) for one, query in zip(found.documents, found.queries, strict=True)] == [
        ("package", "Do one thing."),
        ("package.Thing", "A thing of two lines."),
        ("package.choose", "Choose once."),
        ("package.choose#2", "Choose otherwise."),
        ("package.outer.inner", "Sit inside."),
    ]
    assert [one.title for one in found.documents][2:4] == ["package.choose", "package.choose"]
    assert found.documents[0].text == REST
    assert [(source, line, one.reason, one.value[:12]) for source, line, one in found.rejected] == [
        ("broken.py", 1, Reason.NOT_PYTHON, "def ("),
        ("nul.py", 1, Reason.NOT_PYTHON, "\\x00"),
        ("package/__init__.py", 11, Reason.SUMMARY_ONLY, "Act."),
        ("package/__init__.py", 21, Reason.REPEATED_TEXT, "Another summ"),
        ("package/__init__.py", 24, Reason.CONTAINS_QUERY, "Quote this. "),
        ("package/__init__.py", 27, Reason.SHORT_REST, "Short one. N"),
    ]
    assert found.read == 11


@pytest.mark.parametrize(
    ("docstring", "summary", "rest"),
    [
        ("One\nline.\n\nTwo.", "One line.", "Two."),
        ("No stop\n\nTwo.", "No stop", "Two."),
        ("Take one, e.g. this. Two.", "Take one, e.g. this.", "Two."),
        ("word " * 20 + "\n" + "word " * 30, ("word " * 20).strip(), ("word " * 30).strip()),
    ],
)
def test_divide(docstring, summary, rest):
    assert python_docs.divide(docstring) == (summary, rest)

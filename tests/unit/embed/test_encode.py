"""Which text stands for a document; vectors are in tests/oracles/test_sentence_transformers.py."""

import pytest

from rayhier.embed.encode import document_text


@pytest.mark.parametrize(
    ("title", "text", "wanted"),
    [
        ("Oak", "A tree.", "Oak A tree."),
        ("", "A tree.", "A tree."),
        ("Oak", "", "Oak"),
        ("", "", ""),
        (" Oak", "two\nlines ", "Oak two\nlines"),
    ],
)
def test_document_text(title, text, wanted):
    assert document_text(title, text) == wanted

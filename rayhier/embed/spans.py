"""Draw pseudo-queries from documents: titles, first sentences, random spans (inverse cloze, Lee et al., 2019).

A draw depends only on a key, the document's id and the number of the span. So all processes draw the same spans.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from rayhier.dataset.documents import document_text
from rayhier.embed.encode import TextEncoder
from rayhier.spec import InputError
from rayhier.spec.train.pseudo_queries import SPANS, PseudoQueries

SENTENCE_END = re.compile(r"[.!?…](?=\s)|[。！？｡।]|(?=\n\s*\n)")
FEWEST_WORDS, LONGEST = 3, 300
"""Fewest words before a full stop that ends a sentence, because `Dr.` does not. Most characters of a first sentence."""
Offsets = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class SpanDrawer:
    """Draws pseudo-queries from the part of a document that the encoder reads: its first `max_length` tokens."""

    tokenizer: Any
    max_length: int
    spec: PseudoQueries

    @classmethod
    def of(cls, encoder: TextEncoder, spec: PseudoQueries) -> Self:
        return cls(encoder.encoder.tokenizer, encoder.max_length, spec)

    def __post_init__(self) -> None:
        if self.spec.has_spans and not self.tokenizer.is_fast:
            raise InputError(
                f"train.pseudo_queries.source: got {self.spec.source!r}, but encoder.model's tokenizer has no offsets; "
                "allowed: titles, or an encoder with a tokenizer.json"
            )

    def draw(
        self, ids: Sequence[str], titles: Sequence[str], texts: Sequence[str], key: str = "0"
    ) -> tuple[list[int], list[str]]:
        """Draw the pseudo-queries of documents. Returns for each pseudo-query the row of its document, and its text."""
        rows: list[int] = []
        drawn: list[str] = []
        for row, (name, title, text, offsets) in enumerate(
            zip(ids, titles, texts, self._offsets(titles, texts), strict=True)
        ):
            of_document = lead(title, text) if self.spec.has_titles else []
            for number in range(SPANS if len(offsets) > self.spec.length else 0):
                first = chosen(f"{key}\0{number}\0{name}", len(offsets) - self.spec.length + 1)
                begin, end = offsets[first][0], offsets[first + self.spec.length - 1][1]
                of_document.append(document_text(title, text)[begin:end])
            rows += [row] * len(of_document)
            drawn += of_document
        return rows, drawn

    def yields_any(self, titles: Sequence[str], texts: Sequence[str]) -> bool:
        return bool(self.draw([""] * len(titles), titles, texts)[0])

    def _offsets(self, titles: Sequence[str], texts: Sequence[str]) -> list[Offsets]:
        if not self.spec.has_spans or not len(texts):
            return [()] * len(texts)
        read: list[Offsets] = self.tokenizer(
            [document_text(title, text) for title, text in zip(titles, texts, strict=True)],
            add_special_tokens=False,
            truncation=True,
            max_length=max(1, self.max_length - self.tokenizer.num_special_tokens_to_add()),
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["offset_mapping"]
        return [
            [offset for offset in offsets if offset[0] >= len(title.strip())]
            for title, offsets in zip(titles, read, strict=True)
        ]


def lead(title: str, text: str) -> list[str]:
    """Return a document's title, or without a title its first sentence. [] if the rest of the document is empty.

    >>> lead("Cats", "They purr."), lead("", "Dr. Cat purrs. Dogs bark."), lead("", "Cats purr.")
    (['Cats'], ['Dr. Cat purrs.'], [])
    """
    first, rest = (title.strip(), text) if title.strip() else first_sentence(text)
    return [first] if first and rest.strip() else []


def first_sentence(text: str) -> tuple[str, str]:
    """Split a text after its first sentence. A blank line also ends a sentence."""
    text = text.strip()
    for end in SENTENCE_END.finditer(text[:LONGEST]):
        if end.group() not in {*".!?…"} or len(text[: end.end()].split()) >= FEWEST_WORDS:
            return text[: end.end()], text[end.end() :]
    return text[:LONGEST], text[LONGEST:]


def chosen(key: str, count: int) -> int:
    """Choose one of the numbers 0 to `count` - 1 by a hash of the key.

    >>> [chosen(f"0{number}", 10) for number in range(5)]
    [3, 9, 3, 9, 5]
    """
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") % count

"""Results in a response: only the parts of documents that the request includes, within a limit of bytes."""

import json
from collections.abc import Sequence

from rayhier.search.answer import Hit
from rayhier.serve.errors import ApiError
from rayhier.serve.http.models import PARTS, Part, Result

NUMBERS = 100
"""Approximate bytes of a result besides its id and the parts included."""


class ResultWriter:
    """Makes the results of a response; ApiError 422 where it exceeds its limit of bytes."""

    def __init__(self, include: Sequence[Part] | None, most: int) -> None:
        """Include some parts of documents, by default all; the response may have about `most` bytes."""
        self._include = PARTS if include is None else include
        self._most, self._left = most, most

    def spend(self, size: int) -> None:
        """Count bytes of the response; ApiError 422 where these exceed the limit."""
        self._left -= size
        if self._left < 0:
            allowed = "ask for fewer results, fewer leaves, fewer questions at once, or less of each by include"
            message = f"answer: got more than {self._most} bytes, limits.max_answer_bytes; allowed: {allowed}"
            raise ApiError(422, "answer_too_large", message)

    def __call__(self, hit: Hit) -> Result:
        """Make a result from a found document; parts that are not included are None."""
        title = hit.title if "title" in self._include else None
        text = hit.text if "text" in self._include else None
        fields = hit.fields if "fields" in self._include else None
        size = NUMBERS + sum(len(part.encode()) for part in (hit.id, title or "", text or ""))
        self.spend(size + (len(json.dumps(fields, default=str)) if fields else 0))
        return Result(
            id=hit.id, score=hit.score, leaf=hit.leaf, title=title, text=text, fields=fields, estimated=hit.estimated
        )

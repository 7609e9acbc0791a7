"""The baseline of an embedded server: FastAPI with a `Snapshot`, as a user would write it in an hour."""

import sys
from typing import Any

import numpy as np
import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from rayhier.search.snapshot import Snapshot
from rayhier.serve.backend.version import Version


class Question(BaseModel):
    """What a search is asked."""

    query: str | None = None
    vector: list[float] | None = None
    k: int = 10


def application(workdir: str) -> FastAPI:
    """An application that answers `POST /v1/search`; it encodes in float32, as the embedded server does."""
    torch.set_num_threads(1)
    searcher, app = Snapshot.open(workdir), FastAPI()
    searcher.model = Version.newest(workdir)[0].model().load()

    @app.post("/v1/search")
    def search(question: Question) -> dict[str, Any]:
        if question.query is not None:
            (answer,) = searcher.search([question.query], question.k)
        else:
            (answer,) = searcher.search(np.array([question.vector], np.float32), question.k)
        results = [
            {"id": hit.id, "score": hit.score, "leaf": hit.leaf, "title": hit.title, "text": hit.text}
            for hit in answer.hits
        ]
        return {"results": results, "leaves": answer.leaves, "documents": answer.documents, "partial": False}

    return app


if __name__ == "__main__":
    uvicorn.run(application(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")

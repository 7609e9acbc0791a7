"""Paths that give other software the served models, in OpenAI's form (embeddings) and Jina's and Cohere's (rerank).

Texts and pairs of such requests share threads, batches and limits with searches.
"""

import time
import uuid
from collections.abc import Callable, Sequence

from fastapi import FastAPI

from rayhier.search.rerank import by_relevance
from rayhier.serve.args import RequestLimits
from rayhier.serve.backend.engine import Engine
from rayhier.serve.errors import ApiError, invalid
from rayhier.serve.http.bodies import NAME_SHOWN, IndexResponse, pack
from rayhier.serve.http.foreign import (
    Embedding,
    EmbeddingsRequest,
    EmbeddingsResponse,
    ModelBody,
    ModelsResponse,
    RerankRequest,
    RerankResponse,
    RerankResult,
    TextBody,
    Usage,
)


def install_models(app: FastAPI, models: Engine, index: Callable[[], IndexResponse], limits: RequestLimits) -> None:
    """Add the paths for models, embeddings and rerank to `app`. `index` describes the index that new requests see."""
    began = int(time.time())

    def served(name: str | None) -> str:
        now = index()
        if name not in (None, now.name, now.model):
            message = f"model: got {name!r:.{NAME_SHOWN}}; allowed: {now.name}, or {now.model}, which are served"
            raise ApiError(404, "model_not_found", message)
        return now.name if name is None else name

    def check_lengths(name: str, texts: Sequence[str]) -> None:
        longest = max(map(len, texts))
        if longest > limits.max_query:
            raise invalid(f"{name}: got {longest} characters; allowed: {limits.max_query}, limits.max_query")

    @app.get("/v1/models", summary="List the models that are served", tags=["models"], response_model=ModelsResponse)
    async def the_models() -> ModelsResponse:
        now = index()
        return ModelsResponse(data=[ModelBody(id=name, created=began) for name in (now.name, now.model)])

    @app.post(
        "/v1/embeddings",
        summary="Encode texts by the trained encoder, in OpenAI's form",
        tags=["models"],
        response_model=EmbeddingsResponse,
    )
    async def embeddings(body: EmbeddingsRequest) -> EmbeddingsResponse:
        name, texts = served(body.model), [body.input] if isinstance(body.input, str) else body.input
        if len(texts) > limits.max_batch:
            raise invalid(f"input: got {len(texts)} texts; allowed: {limits.max_batch}, limits.max_batch")
        check_lengths("input", texts)
        if body.dimensions not in (None, index().dimension):
            raise invalid(f"dimensions: got {body.dimensions}; allowed: {index().dimension}, which vectors have")
        vector_NM, tokens = await models.encode(texts)
        data = [
            Embedding(index=place, embedding=pack(vector_M) if body.encoding_format == "base64" else vector_M.tolist())
            for place, vector_M in enumerate(vector_NM)
        ]
        return EmbeddingsResponse(data=data, model=name, usage=Usage(prompt_tokens=tokens, total_tokens=tokens))

    async def rerank(body: RerankRequest) -> RerankResponse:
        name, texts = served(body.model), [document.text for document in body.documents]
        if len(texts) > limits.max_budget:
            raise invalid(f"documents: got {len(texts)}; allowed: {limits.max_budget}, limits.max_budget")
        check_lengths("query", [body.query])
        check_lengths("documents", texts)
        results = [
            RerankResult(
                index=place,
                relevance_score=score,
                document=TextBody(text=texts[place]) if body.return_documents else None,
            )
            for place, score in by_relevance(await models.score(body.query, texts))[: body.top_n]
        ]
        return RerankResponse(id=uuid.uuid4().hex, model=name, results=results)

    for path, form in {"/v1/rerank": "Jina's", "/v2/rerank": "Cohere's"}.items():
        app.post(
            path,
            summary=f"Score documents for a query by the cross-encoder, in {form} form",
            tags=["models"],
            response_model=RerankResponse,
            response_model_exclude_none=True,
        )(rerank)

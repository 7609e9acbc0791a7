"""Random transformers of several architectures."""

import shutil

import pytest
import torch
from transformers import AutoConfig, AutoModel

from rayhier.model.encoder import Encoder

SHAPE = {"vocab_size": 60, "max_position_embeddings": 40}
LIKE_BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture
def architecture(tmp_path, tiny_model):
    """Saves a random model of two layers, with the tiny model's tokenizer, and opens it as an encoder."""
    own = {
        "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
        "albert": {**LIKE_BERT, "embedding_size": 8},
        "t5": {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 8, "d_ff": 32},
        "modernbert": {**LIKE_BERT, "pad_token_id": 0, "local_attention": 16},
    }

    def made(name, dtype=torch.float32):
        folder = tmp_path / name
        shutil.copytree(tiny_model, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
        AutoModel.from_config(AutoConfig.for_model(name, **SHAPE, **own.get(name, LIKE_BERT))).save_pretrained(folder)
        return Encoder(folder, dtype)

    return made

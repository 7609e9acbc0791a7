"""Random transformers of several architectures."""

import shutil

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaModel,
)

from rayhier.model.encoder import Encoder

SHAPE = {"vocab_size": 60, "max_position_embeddings": 40}
LIKE_BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture
def architecture(tmp_path, tiny_model):
    """Saves a random model of two layers, with the tiny model's tokenizer, and opens it as an encoder."""
    kinds = {
        "bert": lambda: BertModel(BertConfig(**SHAPE, **LIKE_BERT)),
        "mpnet": lambda: MPNetModel(MPNetConfig(**SHAPE, **LIKE_BERT)),
        "roberta": lambda: RobertaModel(RobertaConfig(**SHAPE, **LIKE_BERT)),
        "distilbert": lambda: DistilBertModel(DistilBertConfig(**SHAPE, dim=16, n_layers=2, n_heads=2, hidden_dim=32)),
        "albert": lambda: AlbertModel(AlbertConfig(**SHAPE, **LIKE_BERT, embedding_size=8)),
        "modernbert": lambda: ModernBertModel(ModernBertConfig(**SHAPE, **LIKE_BERT, pad_token_id=0)),
    }

    def made(name, dtype=torch.float32):
        folder = tmp_path / name
        shutil.copytree(tiny_model, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
        kinds[name]().save_pretrained(folder)
        return Encoder(folder, dtype)

    return made

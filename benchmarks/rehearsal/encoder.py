"""An untrained encoder of two layers: a text's vector is about the mean of its words' random vectors."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
DIMENSION = 64
LONGEST = 64
"""Most tokens of a text."""


def write(folder: Path, words: Sequence[str], dimension: int = DIMENSION) -> None:
    """Write an encoder whose tokens are words, in sentence-transformers' layout: mean pooling, unit vectors."""
    folder.mkdir(parents=True)
    pieces = [*SPECIAL, *words]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": dimension, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(
        vocab_size=len(pieces), max_position_embeddings=LONGEST, intermediate_size=4 * dimension, **shape
    )
    model = BertModel(config)
    torch.nn.init.normal_(
        model.embeddings.word_embeddings.weight
    )  # as BERT draws them, they would weigh no more than a place
    model.save_pretrained(folder, safe_serialization=True)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    pooling = {"word_embedding_dimension": dimension, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))

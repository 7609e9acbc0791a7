"""Folders of several kinds, and what trains; the encoder is in tests/oracles/test_sentence_transformers.py."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import RobertaConfig, RobertaModel

from rayhier.embed.encode import TextEncoder
from rayhier.model.encoder import POOL, Encoder, ResidualHead, load_transformer, save_encoder
from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize(("mask", "at"), [([1, 1, 1, 0], 0), ([0, 0, 1, 1], 2), ([0, 0, 0, 1], 3)])
def test_cls_is_the_first_token_whichever_side_is_padded(mask, at):
    hidden = torch.randn(1, 4, 3)
    torch.testing.assert_close(POOL["cls"](hidden, torch.tensor([mask])), hidden[:, at])


@pytest.fixture
def roberta(tmp_path):
    """A folder whose tokenizer is vocab.json and merges.txt, and whose positions begin after the padding's."""
    folder = tmp_path / "roberta"
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdefgh", "Ġ", "ab"]
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = RobertaConfig(vocab_size=len(pieces), max_position_embeddings=20, pad_token_id=1, **shape)
    RobertaModel(config).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"}))
    return folder


@pytest.mark.parametrize("name", ["bert", "mpnet", "roberta", "distilbert", "t5"])
def test_what_trains_is_the_last_layer_or_all_but_the_pooler(name, architecture):
    encoder = architecture(name)
    found = {id(parameter) for parameter in encoder.trainable("all")}
    assert found == {id(value) for name, value in encoder.named_parameters() if ".pooler." not in name}
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    optimizer = torch.optim.SGD(encoder.trainable("last_layer"), lr=1.0)
    ids = torch.tensor([[2, 7, 9, 3], [2, 8, 3, 0]])
    encoder(ids, (ids != 0).long())[:, 0].sum().backward()
    optimizer.step()
    changed = {name for name, value in encoder.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all(".layer.1." in name or ".block.1." in name for name in changed)


def test_an_architecture_without_known_layers_is_refused(architecture):
    encoder = architecture("albert")
    with pytest.raises(InputError, match=r"encoder\.train: got 'last_layer', .*AlbertModel .*allowed: head, all"):
        encoder.trainable("last_layer")
    assert encoder.trainable("all")


def test_any_tokenizer_goes_with_the_saved_encoder(roberta, tmp_path):
    save_encoder(roberta, ResidualHead(16), 12, tmp_path / "saved")
    texts = ["ab cd", "h a b", "efg"]
    ids = Encoder(roberta, torch.float32).tokenizer(texts)["input_ids"]
    assert len({tuple(one) for one in ids}) == 3
    assert Encoder(tmp_path / "saved", torch.float32).tokenizer(texts)["input_ids"] == ids
    encoder = TextEncoder(roberta, EncoderSpec(model=str(roberta), precision="float32"))
    assert encoder.max_length == 18, "a text longer than the positions is cut to them"
    assert np.isfinite(encoder.encode(["abcdefgh " * 30])).all()


def test_weights_of_other_names_or_shapes_are_refused(roberta, tmp_path):
    save_encoder(roberta, ResidualHead(16), 12, tmp_path / "saved")
    save_file({"linear.weight": torch.zeros(16, 15)}, tmp_path / "saved" / "2_Dense" / "model.safetensors")
    with pytest.raises(InputError, match=r"holds no linear\.weight of 16 x 16"):
        Encoder(tmp_path / "saved", torch.float32)
    tensors = {f"x.{name}": tensor for name, tensor in load_file(roberta / "model.safetensors").items()}
    save_file(tensors, roberta / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"lacks .* tensors of its config"):
        load_transformer(roberta, torch.float32)

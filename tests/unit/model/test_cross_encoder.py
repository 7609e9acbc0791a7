"""The cross-encoder: both heads against plain transformers code, folders, and what is refused."""

import json

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertTokenizerFast,
    DistilBertConfig,
    ElectraConfig,
    RobertaConfig,
)

from rayhier.model.cross_encoder import ScoreLayer, load_cross_encoder, save_cross_encoder
from rayhier.scores import scorer as scoring
from rayhier.scores.scorer import fastest, read_pairs
from rayhier.spec import InputError
from rayhier.spec.cross_encoder import CrossEncoderSpec
from rayhier.storage.cross_encoder_folder import describe

PAIRS = [
    ("leaf root", "a leaf"),
    ("pine", "pine oak ash elm wolf bear"),
    ("bird fish", ""),
    ("", "moss fern"),
    ("a", "a"),
]


def spec(folder, **own):
    return CrossEncoderSpec(model=str(folder), **{"max_length": 16, "precision": "float32", **own})


@pytest.fixture
def folder(tiny_model, tmp_path):
    save_cross_encoder(load_cross_encoder(tiny_model, "cls", seed=3), 16, tmp_path / "ce")
    return tmp_path / "ce"


def test_cls_is_sequence_classification(folder):
    ours = read_pairs(load_cross_encoder(folder, "cls"), PAIRS, spec(folder))
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for score, (query, item) in zip(ours, PAIRS, strict=True):
        given = tokenizer([query], [item], truncation=True, max_length=16, return_tensors="pt")
        with torch.inference_mode():
            assert score == pytest.approx(model(**given).logits.item(), abs=1e-5)


SHAPE = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 60}
MODELS = {
    "bert": (BertConfig(**SHAPE), 1),
    "roberta": (RobertaConfig(**SHAPE, pad_token_id=1), 1),
    "electra": (ElectraConfig(**SHAPE, embedding_size=16), 1),
    "another": (DistilBertConfig(dim=16, n_heads=2, hidden_dim=32, n_layers=2, vocab_size=60), None),
}


@pytest.mark.parametrize(("config", "read"), MODELS.values(), ids=MODELS)
def test_the_last_layer_computes_what_is_read_with_the_same_scores(config, read, tmp_path):
    torch.manual_seed(0)
    config.num_labels = 1
    whole = AutoModelForSequenceClassification.from_config(config).eval()
    whole.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]))
    BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    model = load_cross_encoder(tmp_path, "cls")
    pairs = model.padded(model.tokenise(["a b", "f"], ["c d e a b c", "g"], 16))
    lengths = []
    for module in model.transformer.modules():
        if type(module).__name__.endswith("Intermediate"):
            module.register_forward_hook(lambda *given: lengths.append(given[2].shape[1]))
    with torch.inference_mode():
        named = {"token_type_ids": pairs.type_NT} if model.types else {}
        expected = whole(input_ids=pairs.ids_NT, attention_mask=pairs.mask_NT, **named).logits[:, 0]
        assert len(set(expected.tolist())) == 2
        torch.testing.assert_close(model(pairs), expected, atol=1e-6, rtol=1e-5)
    assert lengths == ([] if read is None else [pairs.ids_NT.shape[1], read])
    model.train()
    model(pairs)
    assert lengths[-1:] == ([] if read is None else [pairs.ids_NT.shape[1]])


def test_emb_is_the_scaled_cosine_of_the_segments_means(tiny_model):
    ours = read_pairs(load_cross_encoder(tiny_model, "emb"), PAIRS[:2], spec(tiny_model, head="emb"))
    model, tokenizer = AutoModel.from_pretrained(tiny_model).eval(), AutoTokenizer.from_pretrained(tiny_model)
    for score, (query, item) in zip(ours, PAIRS, strict=False):
        given = tokenizer(query, item, return_tensors="pt")
        with torch.inference_mode():
            hidden_TM = model(**given).last_hidden_state[0]
        kinds = np.array([-1 if kind is None else kind for kind in given.sequence_ids(0)])
        query_M, item_M = (hidden_TM[kinds == kind].mean(0) for kind in (0, 1))
        assert score == pytest.approx(20 * torch.cosine_similarity(query_M, item_M, dim=0).item(), abs=1e-4)


def test_the_last_layer_computes_in_float32_whatever_the_rest_does(folder):
    model = load_cross_encoder(folder, "cls", torch.bfloat16)
    assert isinstance(model.transformer.classifier, ScoreLayer)
    scores = read_pairs(model, PAIRS, spec(folder))
    exact = read_pairs(load_cross_encoder(folder, "cls"), PAIRS, spec(folder))
    np.testing.assert_allclose(scores, exact, atol=0.02)
    assert (torch.tensor(scores).bfloat16().float().numpy() != scores).any()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.transformer.classifier(torch.ones(1, 32)).dtype == torch.float32


def test_precision_is_the_fastest_that_agrees(monkeypatch):
    """float16 is the fastest but wrong, bfloat16 agrees and is faster than float32."""
    seconds = {"float32": 3.0, "bfloat16": 2.0, "float16": 1.0}
    scores = {"float32": [1, 2, 3], "bfloat16": [1, 2, 3.01], "float16": [3, 1, 2]}
    now = [0.0]
    monkeypatch.setattr(scoring.time, "perf_counter", lambda: now[0])

    def score(model, _):
        now[0] += seconds[model]
        return np.array(scores[model], np.float32)

    assert fastest(lambda name: name, score, PAIRS[:3]) == ("bfloat16", "bfloat16")
    scores["bfloat16"] = [1, 2, float("nan")]
    assert fastest(lambda name: name, score, PAIRS[:3])[0] == "float32"
    assert fastest(lambda name: name, score, PAIRS[:2])[0] == "float32"  # two pairs always correlate


def test_the_scale_is_part_of_the_folder(tiny_model, tmp_path):
    model = load_cross_encoder(tiny_model, "emb")
    model.scale.data.fill_(7.5)
    save_cross_encoder(model, 16, tmp_path)
    assert load_cross_encoder(tmp_path, "emb").scale.item() == 7.5
    before = describe(spec(tmp_path, head="emb")).files
    model.scale.data.fill_(8.5)
    save_cross_encoder(model, 16, tmp_path)
    assert describe(spec(tmp_path, head="emb")).files != before


def test_a_wrong_folder_is_refused(folder, tiny_model):
    """Each other mistake is refused as for encoders (test_model_folder.py)."""
    with pytest.raises(InputError, match=r"cross_encoder\.sha256: .*; allowed: 0{64}"):
        describe(spec(folder, sha256="0" * 64))
    with pytest.raises(InputError, match=r"lacks .* tensors of a cross-encoder, the first: classifier"):
        load_cross_encoder(tiny_model, "cls")
    config = json.loads((folder / "config.json").read_text())
    two = {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}}
    (folder / "config.json").write_text(json.dumps(config | two))
    with pytest.raises(InputError, match="has 2 outputs; allowed: one"):
        load_cross_encoder(folder, "cls")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"cross_encoder\.model: .* holds pytorch_model.bin, a pickle"):
        describe(spec(folder))

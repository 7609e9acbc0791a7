"""Exported encoders: equal to torch, or not used."""

import numpy as np
import pytest

from rayhier.embed import export as exporting
from rayhier.embed.encode import TextEncoder
from rayhier.embed.export import export
from rayhier.embed.onnx import FOLDER, MODELS, OnnxEncoder
from rayhier.model.encoder import ResidualHead, save_encoder
from rayhier.search.routing import routes
from rayhier.search.routing.routes import search_encoder
from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec

from ..model.conftest import architecture

__all__ = ["architecture"]  # fixture
BY_TORCH = ("modernbert",)
"""Its window is narrower than a text."""
SPEC = EncoderSpec(model="unused", max_length=32, precision="float32")


@pytest.fixture
def folder(tiny_model, tmp_path):
    save_encoder(tiny_model, ResidualHead(32), 32, tmp_path / "encoder")
    return tmp_path / "encoder"


def test_texts_of_any_length_in_any_order(folder):
    export(folder)
    texts = [word * count for count in (1, 0, 100_000, 7, 30, 2) for word in ("oak ", "é ", " ")]
    by_torch, by_onnx = TextEncoder(folder, SPEC), search_encoder(folder, SPEC)
    assert isinstance(by_onnx, OnnxEncoder)
    assert by_onnx.tokenise(texts) == [list(ids) for ids in by_torch.tokenise(texts)]
    np.testing.assert_allclose(by_onnx.encode(texts), by_torch.encode(texts), atol=1e-5)
    assert by_onnx.encode([]).shape == (0, 32)


def test_an_export_is_kept_until_weights_change(folder, tmp_path, tiny_model, monkeypatch):
    export(folder)
    made = {name: (folder / FOLDER / name).read_bytes() for name in MODELS.values()}
    monkeypatch.setattr(exporting, "_export", None)
    save_encoder(tiny_model, ResidualHead(32), 32, tmp_path / "another")
    export(tmp_path / "another")
    assert {name: (tmp_path / "another" / FOLDER / name).read_bytes() for name in made} == made


@pytest.mark.parametrize("name", ["bert", "mpnet", "roberta", "distilbert", "albert", "t5", "modernbert"])
def test_architectures(name, architecture, tmp_path):
    """Texts of several lengths are compared, which would show a mask or a length that was taken for a constant."""
    architecture(name)
    export(tmp_path / name)
    by_torch, by_onnx = TextEncoder(tmp_path / name, SPEC), search_encoder(tmp_path / name, SPEC)
    assert isinstance(by_onnx, OnnxEncoder) == (name not in BY_TORCH)
    tokens = [np.arange(5, 5 + count) for count in (9, 1, 25, 3)]
    np.testing.assert_allclose(by_onnx.read(tokens).numpy, by_torch.read(tokens).numpy, atol=1e-5)
    if name in BY_TORCH:
        return
    in_int8 = OnnxEncoder(tmp_path / name, SPEC, 1, "int8")
    together, alone = in_int8.read(tokens).numpy, [in_int8.read([ids]).numpy[0] for ids in tokens]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert 1e-6 < np.abs(together - by_torch.read(tokens).numpy).max() < 1e-2


def test_an_export_that_differs_is_not_used(folder, monkeypatch):
    said = []
    monkeypatch.setattr(exporting, "say", said.append)
    monkeypatch.setattr(exporting, "MOST", -1.0)
    monkeypatch.setattr(exporting, "VERSION", "of this test")
    export(folder)
    assert "vectors of tokens differ by" in said[0]
    assert not (folder / FOLDER).exists()
    assert isinstance(search_encoder(folder, SPEC), TextEncoder)


def test_a_file_that_the_runtime_cannot_read(folder, monkeypatch, capsys):
    export(folder)
    (folder / FOLDER / MODELS["float32"]).write_bytes(b"\x08\x63" * 9)
    assert isinstance(search_encoder(folder, SPEC), TextEncoder)
    assert ". torch encodes texts" in capsys.readouterr().err
    monkeypatch.setattr(routes, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"model\.onnx: onnxruntime [\d.]+ cannot read it .*; allowed: "):
        search_encoder(folder, SPEC)

"""Export an encoder's transformer to ONNX, so that searches encode with ONNX Runtime and need no torch."""

import contextlib
import logging
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rayhier.embed.int8 import quantise
from rayhier.embed.onnx import FOLDER, INPUTS, MODELS, OUTPUT, SIZES, TOKENIZER, Transformer
from rayhier.model.encoder import load_tokenizer, load_transformer, positions
from rayhier.progress import say
from rayhier.storage import cache, files
from rayhier.storage.model_folder import weight_files
from rayhier.storage.model_layout import read_layout

MOST = 1e-4
"""Largest allowed difference between ONNX Runtime and torch in a number of a token's vector."""
TRACED, TRIED = (3, 12), ((1, 9), (4, 24), (2, 512))
"""Texts and tokens of the exported batch, and of batches that are compared. Long texts test a sliding window."""
VERSION = f"5, torch {torch.__version__}"
OPSET, KEPT_BYTES = 17, 2e9
"""Version of ONNX's operators, and most bytes of exports that are kept on this machine."""


class _Tokens(nn.Module):
    """A transformer that takes an additive mask [n, 1, t, t], which every model of transformers takes unchanged."""

    def __init__(self, transformer: Any) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, ids_NT: Tensor, mask_NT: Tensor) -> Tensor:
        away_N1TT = (1 - mask_NT[:, None, None].float()) * torch.finfo(torch.float32).min
        added_N1TT = away_N1TT.expand(-1, -1, ids_NT.shape[1], -1)
        hidden_NTM: Tensor = self.transformer(input_ids=ids_NT, attention_mask=added_N1TT).last_hidden_state
        return hidden_NTM


def export(folder: Path) -> None:
    """Export the transformer in an encoder's folder into the folder, or copy an export that this machine keeps.

    If torch cannot export the transformer, or the export gives other numbers, a warning says that searches use torch.
    """
    layout = read_layout(folder)
    place = layout.transformer
    digests = [files.digest(file) for file in [place / "config.json", *weight_files(place)]]
    try:
        kept = cache.get_or_build("onnx", f"{VERSION} {digests}", lambda made: _export(folder, made), KEPT_BYTES)
        tokenizer = load_tokenizer(layout).backend_tokenizer
    except Exception as error:  # noqa: BLE001  what tracing raises, by what it meets in a model
        say(f"warning: searches encode by torch: the encoder cannot be exported ({str(error).splitlines()[0][:200]})")
        return
    (folder / FOLDER).mkdir(exist_ok=True)  # a stopped run may have begun the folder
    for name in (*MODELS.values(), SIZES):
        if (kept.folder / name).is_file():  # int8 may be missing
            shutil.copyfile(kept.folder / name, folder / FOLDER / name)
    tokenizer.save(str(folder / FOLDER / TOKENIZER))


def _export(folder: Path, made: Path) -> None:
    expected = load_transformer(folder, torch.float32)
    traced, config = load_transformer(folder, torch.float32, attn_implementation="eager"), expected.config
    size, names = int(config.vocab_size), [*INPUTS, OUTPUT]
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            _Tokens(traced).eval(),
            _texts(*TRACED, size),
            str(made / MODELS["float32"]),
            input_names=INPUTS,
            output_names=[OUTPUT],
            dynamic_axes={name: {0: "n", 1: "t"} for name in names},
            opset_version=OPSET,
            dynamo=False,
        )
    computed = Transformer(made / MODELS["float32"], threads=1)
    for texts, length in TRIED:
        ids_NT, mask_NT = _texts(texts, min(length, positions(expected)), size)
        with torch.inference_mode():
            wanted = expected(input_ids=ids_NT, attention_mask=mask_NT).last_hidden_state.numpy()
        found = computed(ids_NT.numpy(), mask_NT.numpy())
        difference = float(np.abs(found - wanted)[mask_NT.bool().numpy()].max())
        if not difference <= MOST:
            raise ValueError(f"vectors of tokens differ by {difference:.1e}; allowed: {MOST:.0e}")
    files.write_json(made / SIZES, {"longest": positions(expected), "padding": config.pad_token_id or 0})
    _quantise(made, *_texts(*TRACED, size))


def _quantise(made: Path, ids_NT: Tensor, mask_NT: Tensor) -> None:
    """Write the transformer in int8 too, if ONNX Runtime can compute it."""
    try:
        quantise(made / MODELS["float32"], made / MODELS["int8"])
        Transformer(made / MODELS["int8"], threads=1)(ids_NT.numpy(), mask_NT.numpy())
    except Exception as error:  # noqa: BLE001  as in `export`
        say(f"warning: queries are encoded in float32, not in int8 ({str(error).splitlines()[0][:200]})")
        (made / MODELS["int8"]).unlink(missing_ok=True)


def _texts(n: int, t: int, size: int) -> tuple[Tensor, Tensor]:
    mask_NT = (torch.arange(t) < torch.tensor([max(1, t - 3 * row) for row in range(n)])[:, None]).long()
    return torch.arange(n * t).reshape(n, t) % size * mask_NT, mask_NT


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "transformers")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

"""Encode texts for searches: ONNX Runtime computes the exported transformer, and numpy computes the other layers.

Vectors are float32. If the transformer computes in float32, they equal torch's vectors to 1e-5.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from rayhier.arrays import Floats, Ints
from rayhier.embed.batches import ONNX_BATCH, Tokens, batches, padded
from rayhier.model.encoded import Encoded, Reader
from rayhier.model.layers import DenseLayer, first, mean, normalized
from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import files
from rayhier.storage.model_layout import LETTERS, DenseStep, NormalizeStep, Role, read_layout

Computed = Literal["float32", "int8"]
FOLDER, SIZES, TOKENIZER = "onnx", "sizes.json", "tokenizer.json"
"""Folder of the exported transformer in an encoder's folder. `SIZES` has the most tokens of a text and the padding id.
`TOKENIZER` has the tokenizer with its settings."""
MODELS: dict[Computed, str] = {"float32": "model.onnx", "int8": "int8.onnx"}
"""Number format in which the transformer computes -> its file in the folder."""
INPUTS, OUTPUT = ["input_ids", "attention_mask"], "last_hidden_state"


class Transformer:
    def __init__(self, file: Path, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  the runtime's errors share no base
            raise InputError(
                f"{file}: onnxruntime {onnxruntime.__version__} cannot read it ({str(error).splitlines()[0][:200]}); "
                "allowed: the onnxruntime of constraints.txt, or a newer one"
            ) from None

    def __call__(self, ids_NT: Ints, mask_NT: Ints) -> Floats:
        """Compute vectors [n, t, m] of tokens from their ids and a mask, 1 on tokens and 0 on padding."""
        (hidden_NTM,) = self._session.run([OUTPUT], dict(zip(INPUTS, (ids_NT, mask_NT), strict=True)))
        return np.asarray(hidden_NTM)


class OnnxEncoder:
    def __init__(self, folder: Path, spec: EncoderSpec, threads: int, precision: Computed = "float32") -> None:
        layout = read_layout(folder)
        self.dimension, self.precision = layout.dimension, precision
        self._transformer, sizes = (
            Transformer(folder / FOLDER / MODELS[precision], threads),
            files.read_json(folder / FOLDER / SIZES),
        )
        self.max_length, self._padding = min(spec.max_length, sizes["longest"]), sizes["padding"]
        self._prefixes, self._pool = layout.prefixes(spec), mean if layout.pooling == "mean" else first
        self._tokenizer = Tokenizer.from_file(str(folder / FOLDER / TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_length)
        self._steps = [
            DenseLayer(step.folder, step.activation) if isinstance(step, DenseStep) else normalized
            for step in layout.steps
        ]
        if spec.similarity == "cosine" and not isinstance((layout.steps or (None,))[-1], NormalizeStep):
            self._steps.append(normalized)

    def tokenise(self, texts: Sequence[str], role: Role = "document") -> list[list[int]]:
        cut = [self._prefixes[role] + text[: LETTERS * self.max_length] for text in texts]
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(cut)]

    def encode(self, texts: Sequence[str], role: Role = "document") -> Floats:
        return self.read(self.tokenise(texts, role)).numpy

    def encode_for(self, reader: Reader | None, texts: Sequence[str], role: Role = "document") -> Encoded:
        return self.read(self.tokenise(texts, role), reader)

    def read(self, tokens: Tokens, reader: Reader | None = None) -> Encoded:
        """Encode texts from their token ids. Texts of similar length are computed together."""
        vector_NM, scores = np.zeros((len(tokens), self.dimension), np.float32), []
        order = list(batches(tokens, ONNX_BATCH))
        for rows in order:
            ids_NT, mask_NT = padded([tokens[row] for row in rows], self._padding)
            hidden_NTM = self._transformer(ids_NT, mask_NT)
            if reader is not None:
                scores.append(_scores(reader, hidden_NTM, mask_NT))
            pooled_NM = self._pool(hidden_NTM, mask_NT)
            for step in self._steps:
                pooled_NM = step(pooled_NM)
            vector_NM[rows] = pooled_NM
        return Encoded(vector_NM, np.concatenate(scores)[np.argsort(np.concatenate(order))] if scores else None)


def _scores(reader: Reader, hidden_NTM: Floats, mask_NT: Ints) -> Floats:
    import torch

    with torch.inference_mode():
        return np.asarray(reader(torch.from_numpy(hidden_NTM), torch.from_numpy(mask_NT)).numpy())

"""Encode texts by one library in its own process: `PYTHON -m benchmarks.encoders TITLE FOLDER LENGTH THREADS`.

The interpreter needs numpy and the library. The first line of output has the packages' versions. Each line of input is
a JSON list of texts. Its line of output has the vectors and the seconds.
"""

import base64
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).parents[1]
BATCH = 64
Vectors = npt.NDArray[np.float32]
Encode = Callable[[list[str]], Any]


def rayhier_onnx(precision: Any, folder: str, length: int, threads: int) -> Encode:
    from rayhier.embed.onnx import OnnxEncoder
    from rayhier.spec.encoder import EncoderSpec

    return OnnxEncoder(Path(folder), EncoderSpec(model=folder, max_length=length), threads, precision).encode


def rayhier_torch(precision: Any, folder: str, length: int, threads: int) -> Encode:
    import torch

    from rayhier.embed.encode import TextEncoder
    from rayhier.spec.encoder import EncoderSpec

    torch.set_num_threads(threads)
    return TextEncoder(Path(folder), EncoderSpec(model=folder, max_length=length, precision=precision)).encode


def by_torch(precision: str, folder: str, length: int, threads: int) -> Encode:
    import torch

    torch.set_num_threads(threads)
    return _sentence_transformer(folder, length, "torch", {"dtype": precision})


def by_onnx(folder: str, length: int, threads: int) -> Encode:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    settings = {"export": True, "provider": "CPUExecutionProvider", "session_options": options}
    return _sentence_transformer(folder, length, "onnx", settings)


def by_openvino(folder: str, length: int, threads: int) -> Encode:
    settings = {"export": True, "ov_config": {"INFERENCE_NUM_THREADS": threads}}
    return _sentence_transformer(folder, length, "openvino", settings)


def _sentence_transformer(folder: str, length: int, backend: Any, settings: dict[str, Any]) -> Encode:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu", backend=backend, model_kwargs=settings, local_files_only=True)
    model.max_seq_length = length
    return partial(model.encode, batch_size=BATCH, show_progress_bar=False)


def by_fastembed(folder: str, length: int, threads: int) -> Encode:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        "local",
        PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(url="none"),
        dim=0,
        model_file="onnx/model.onnx",
    )
    model = TextEmbedding("local", threads=threads, specific_model_path=folder)
    model.model.tokenizer.enable_truncation(length)
    return lambda texts: list(model.embed(texts, batch_size=BATCH))


ENCODERS: dict[str, tuple[tuple[str, ...], Callable[[str, int, int], Encode]]] = {
    "rayhier, ONNX Runtime, float32": (("rayhier", "onnxruntime"), partial(rayhier_onnx, "float32")),
    "rayhier, ONNX Runtime, int8": (("rayhier", "onnxruntime"), partial(rayhier_onnx, "int8")),
    "rayhier, torch, float32": (("rayhier", "torch"), partial(rayhier_torch, "float32")),
    "rayhier, torch, bfloat16": (("rayhier", "torch"), partial(rayhier_torch, "bfloat16")),
    "rayhier, torch, auto": (("rayhier", "torch"), partial(rayhier_torch, "auto")),
    "sentence-transformers, torch, float32": (("sentence-transformers", "torch"), partial(by_torch, "float32")),
    "sentence-transformers, torch, bfloat16": (("sentence-transformers", "torch"), partial(by_torch, "bfloat16")),
    "sentence-transformers, onnx": (("sentence-transformers", "optimum-onnx", "onnxruntime"), by_onnx),
    "sentence-transformers, openvino": (("sentence-transformers", "optimum-intel", "openvino"), by_openvino),
    "fastembed": (("fastembed", "onnxruntime"), by_fastembed),
}
"""Title of an encoder: the packages that it needs, and the function that loads it for a folder, length and threads."""


@dataclass
class Process:
    """An encoder that was loaded in another process."""

    versions: str
    opened: subprocess.Popen[str]

    def encode(self, texts: Sequence[str]) -> tuple[float, Vectors]:
        """Return the seconds of encoding, and unit vectors."""
        found = _asked(self.opened, list(texts))
        vector_NM = np.frombuffer(base64.b64decode(found["vectors"]), np.float32).reshape(len(texts), -1)
        return found["seconds"], vector_NM / np.linalg.norm(vector_NM, axis=1, keepdims=True)


@contextlib.contextmanager
def process_of(title: str, pythons: Sequence[str], *settings: object) -> Iterator[Process | None]:
    """Load an encoder with the first interpreter that has its packages. None if none has them."""
    for python in pythons:
        command = [python, "-m", "benchmarks.encoders", title, *map(str, settings)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as opened:
            if versions := _answer(opened)["versions"]:
                yield Process(versions, opened)
                opened.communicate()
                return
    yield None


def _asked(opened: subprocess.Popen[str], question: object) -> Any:
    assert opened.stdin is not None
    print(json.dumps(question), file=opened.stdin, flush=True)
    return _answer(opened)


def _answer(opened: subprocess.Popen[str]) -> Any:
    assert opened.stdout is not None
    return json.loads(opened.stdout.readline() or sys.exit(f"{opened.args!r}: it ended without an answer"))


def main(title: str, folder: str, length: str, threads: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to standard error
    packages, load = ENCODERS[title]
    try:
        versions = ", ".join(f"{package} {version(package)}" for package in packages)
    except PackageNotFoundError:
        print(json.dumps({"versions": None}), file=answers, flush=True)
        return
    encode = load(folder, int(length), int(threads))
    print(json.dumps({"versions": versions}), file=answers, flush=True)
    for line in sys.stdin:
        texts = json.loads(line)
        began = time.perf_counter()
        vectors = encode(texts)
        seconds = time.perf_counter() - began
        encoded = base64.b64encode(np.asarray(vectors, np.float32).tobytes()).decode()
        print(json.dumps({"seconds": seconds, "vectors": encoded}), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

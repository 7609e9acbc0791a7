"""What every test shares: one Ray cluster a session, the collections, a tiny encoder and a tiny corpus."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rayhier  # noqa: F401  before torch, so that OpenMP waits as it does in a run

ROOT = Path(__file__).parents[1]
TEXT = "leaf root branch tree river stone cloud rain bird fish moss fern pine oak ash elm wolf bear deer hare"
WORDS = TEXT.split()
DOCUMENTS, QUERIES = 240, 120


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A local Ray cluster of eight logical CPUs, whatever the machine has."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    ray.init(
        address="local",
        num_cpus=8,
        object_store_memory=200_000_000,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """`data("scifact")`: the folder of a collection. A test that needs one fails where there is none."""

    def find(name: str) -> Path:
        given = os.environ.get("RAYHIER_DATA")
        places = [*([Path(given)] if given else []), ROOT / "data", ROOT.parent / "shared" / "data"]
        for place in places:
            if (place / name / "corpus.jsonl").is_file():
                return place / name
        tried = ", ".join(str(place) for place in places)
        return pytest.fail(f"collection {name!r} is in none of {tried}: set RAYHIER_DATA to the folder that holds it")

    return find


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of one layer and 32 dimensions with random weights, in sentence-transformers' layout."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny-model")
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *alphabet, *(f"##{letter}" for letter in alphabet), *WORDS]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(pieces), max_position_embeddings=64, **shape)
    BertModel(config).save_pretrained(folder, safe_serialization=True)
    (folder / "modules.json").write_text(
        json.dumps([{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}])
    )
    return folder


@pytest.fixture
def tiny_corpus(tmp_path: Path) -> Path:
    """A BEIR folder: each query holds three words of its one relevant document."""
    folder = tmp_path / "corpus"
    (folder / "qrels").mkdir(parents=True)
    documents = [
        {
            "_id": f"d{n}",
            "title": f"{WORDS[n % 20]} {n}",
            "text": " ".join(WORDS[(n * step) % 20] for step in range(1, 9)),
        }
        for n in range(DOCUMENTS)
    ]
    queries = [{"_id": f"q{n}", "text": " ".join(documents[n]["text"].split()[:3]) + f" {n}"} for n in range(QUERIES)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    for split, rows in {"train": range(80), "test": range(80, QUERIES)}.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"q{n}\td{n}\t1" for n in rows)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def tiny_spec(tmp_path: Path, tiny_corpus: Path, tiny_model: Path) -> Callable[..., Path]:
    """`tiny_spec()` writes a spec over the tiny corpus; keyword arguments replace whole lines of it."""

    def write(**lines: str) -> Path:
        given = {
            "name": "tiny",
            "workdir": str(tmp_path / "work"),
            "corpus": f"{{type: beir, path: {tiny_corpus}}}",
            "encoder": f"{{model: {tiny_model}, max_length: 32, precision: float32}}",
            "router": "{type: ehi, branching: 8}",
            "train": "{epochs: 3, batch_size: 16}",
            "index": "{shards: 3, vectors: float32}",
            "search": "{k: 10, beam: 2}",
            "evaluate": "{measures: [nDCG@10, R@10], lists: 8}",
            "cluster": "{train: {workers: 1, cpus: 1}}",
            **lines,
        }
        path = tmp_path / "spec.yaml"
        path.write_text("".join(f"{key}: {value}\n" for key, value in given.items()))
        return path

    return write

"""About how many passages `--plan` reckons with, and how many the corpus stage then makes."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.corpus import parts, sources
from rayhier.corpus.passages import DocumentLayout
from rayhier.spec.corpus import Limits, OwnFiles, Passages
from rayhier.storage.source import describe

PASSAGES = Passages(words=50, stride=40)
LONGEST = 900
"""Characters, so that long texts are cut before they are cut into passages."""


@pytest.fixture
def texts():
    """Many short, some long, one in twelve without a word."""
    draw = random.Random(0)
    words = ["a", "an", "extraordinarily", "oak", "x" * 40, "tree\u00a0of"]
    sizes = [0 if not n % 12 else int(draw.lognormvariate(3.6, 1.2)) for n in range(200)]
    return [" ".join(draw.choices(words, k=size)) for size in sizes]


@pytest.fixture(autouse=True)
def shorter(monkeypatch):
    monkeypatch.setattr("rayhier.spec.corpus.LIMITS", Limits(text=LONGEST))


def write(folder, kind, texts):
    """A source of one type: its spec, with passages."""
    common = {"type": kind, "passages": PASSAGES}
    match kind:
        case "jsonl":
            rows = [{"key": n, "title": "t", "body": text} for n, text in enumerate(texts)]
            lines = [json.dumps(row, ensure_ascii=False) for row in rows]
            (folder / "a.jsonl").write_text("")
            (folder / "b.jsonl").write_text("\n\n".join([*lines[:5], "{", "[]", '{"key": "x", "body": 3}', *lines[5:]]))
            return OwnFiles(**common, documents=str(folder), columns={"id": "key", "text": "body"})
        case _:
            ids, titles = [f"d{n}" for n in range(len(texts))], ["t"] * len(texts)
            pq.write_table(pa.table({"id": ids, "title": titles, "body": texts}), folder / "a.parquet")
            return OwnFiles(**common, documents=str(folder / "a.parquet"), columns={"text": "body"})


def passages(spec, root):
    """What the corpus stage makes: documents, and passages of them."""
    layout, reader = DocumentLayout.of(spec), sources.ranged(spec)
    accepted = sum(parts.make(span, reader.documents(span), root, layout) for span in reader.ranges())
    return accepted, sum(pq.read_metadata(path).num_rows for path in (root / "documents").iterdir())


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_sample_of_all_is_exact(tmp_path, texts, kind, monkeypatch):
    spec = write(tmp_path, kind, texts)
    documents, made = passages(spec, tmp_path / "made")
    assert made > 1.2 * documents, "many documents are several passages"
    assert describe(spec).rows == made

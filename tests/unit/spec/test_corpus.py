"""What may be said of a corpus."""

import pytest
from pydantic import TypeAdapter, ValidationError

from rayhier.spec.corpus import RESERVED, CorpusSpec

JSONL = {"type": "jsonl", "documents": "d"}
CORPUS = TypeAdapter(CorpusSpec)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"passages": {"words": 3, "stride": 4}}, "a stride of at most words"),
        ({"passages": {"words": 3}}, "stride"),
        ({"fields": {"year": "integer"}}, "'int', 'float', 'string' or 'bool'"),
        ({"fields": {"a year": "int"}}, "letters, digits and _"),
        ({"judgements": {"test": "t.tsv"}}, "only together with queries"),
        ({"columns": {"id": ""}}, "columns.id"),
        *(({"fields": {name: "int"}}, "a name other than doc_id") for name in RESERVED),
    ],
)
def test_refused(section, message):
    with pytest.raises(ValidationError, match=message):
        CORPUS.validate_python(JSONL | section)


@pytest.mark.parametrize("source", [{"type": "msmarco", "path": "p"}, {"type": "python_docs"}])
def test_a_source_of_short_texts_takes_neither_fields_nor_passages(source):
    for key, value in {"fields": {"year": "int"}, "passages": {"words": 2, "stride": 2}}.items():
        with pytest.raises(ValidationError, match=key):
            CORPUS.validate_python(source | {key: value})


def test_judgements_of_a_hub_data_set_lie_beside_it():
    assert CORPUS.validate_python({"type": "huggingface", "path": "BeIR/scifact"}).qrels == "BeIR/scifact-qrels"
    given = {"type": "huggingface", "path": "mteb/scifact", "judgements": "mteb/scifact"}
    assert CORPUS.validate_python(given).qrels == "mteb/scifact"

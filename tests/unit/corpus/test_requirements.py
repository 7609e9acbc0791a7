"""Specs that ask for what a corpus lacks."""

import copy

import pytest

from rayhier.corpus import requirements
from rayhier.spec import InputError, JobSpec

ROWS = {"read": 30, "accepted": 20, "rejected": {"unknown query": 10}}
COUNTS = {
    "documents": {"read": 30, "accepted": 20, "rejected": {"empty text": 7, "not JSON": 3}, "cut": 0},
    "queries": {"read": 9, "accepted": 9, "rejected": {}, "cut": 0},
    "rows": 20,
    "fields": {},
    "judgements": dict.fromkeys(("train", "dev", "test"), ROWS),
    "asked_before": {split: {"queries": 9, "by_id": 4, "by_text": 4} for split in ("dev", "test")},
    "splits": {split: {"queries": 9, "judgements": 20, "relevant": 10} for split in ("train", "dev", "test")},
}


def job(**sections):
    tree = {
        "name": "test",
        "workdir": "unused",
        "corpus": {"type": "beir", "path": "folder"},
        "encoder": {"model": "unused"},
        "router": {"type": "learned_ivf"},
    }
    return JobSpec.model_validate(tree | sections)


def counts(**relevant):
    """COUNTS with so many judgements above 0 in these splits."""
    changed = copy.deepcopy(COUNTS)
    for split, number in relevant.items():
        changed["splits"][split]["relevant"] = number
    return changed


def test_queries_without_the_key_of_their_text_are_counted():
    held = copy.deepcopy(COUNTS)
    held["queries"] = {"read": 500, "accepted": 0, "rejected": {"missing key of the text": 500}, "cut": 0}
    mine = {"type": "jsonl", "documents": "d.jsonl", "queries": "q.jsonl", "query_columns": {"text": "body"}}
    assert refusal(job(corpus=mine), held) == (
        "corpus.queries: key 'body' is missing in 500 of 500 queries; allowed: rows with id and body, or "
        "corpus.query_columns that name other keys"
    )


def test_a_split_whose_judgements_were_all_rejected_is_refused():
    held = copy.deepcopy(COUNTS)
    held["judgements"] = held["judgements"] | {
        "train": {"read": 127, "accepted": 0, "rejected": {"unknown document": 127}}
    }
    held["splits"]["train"]["relevant"] = 0
    assert refusal(job(), held) == (
        "corpus: no train judgement accepted (127 read; rejected: unknown document 127); allowed: judgements that name "
        "documents and queries by the ids that these have"
    )


def test_a_file_that_trains_and_judges_is_refused():
    mine = {"type": "jsonl", "documents": "d.jsonl", "queries": "q.jsonl"}
    with pytest.raises(ValueError, match=r"train names a\.tsv and so does dev or test"):
        job(corpus=mine | {"judgements": {"train": "a.tsv", "test": "a.tsv"}})


def refusal(spec, held, check=requirements.check):
    with pytest.raises(InputError) as caught:
        check(spec, held)
    return str(caught.value)


def test_more_leaves_than_documents():
    message = refusal(job(router={"type": "learned_ivf", "branching": 21}), COUNTS)
    assert "router.branching" in message
    assert "21 leaves; allowed: at most as many leaves as documents (20)" in message
    tall = job(router={"type": "learned_ivf", "branching": 3, "height": 3})
    assert "got 3 with height 3, 27 leaves" in refusal(tall, COUNTS)
    requirements.check(job(router={"type": "retreever", "depth": 4}), COUNTS)
    assert refusal(job(router={"type": "retreever", "depth": 5}), COUNTS) == (
        "router.depth: got 5, 32 leaves; allowed: at most as many leaves as documents (20)"
    )


def test_supervised_without_train_judgements():
    message = refusal(job(train={"objective": "supervised"}), counts(train=0))
    assert message.startswith("train.objective: got 'supervised'")
    assert "unknown query 10" in message
    assert message.endswith("allowed: auto, documents")
    requirements.check(job(), counts(train=0))


def test_nothing_to_evaluate_on():
    check = requirements.check_split
    check(job(), counts(dev=0))
    check(job(evaluate={"split": "dev"}), counts(test=0))
    assert refusal(job(), counts(test=0), check).endswith("allowed here: dev")
    assert refusal(job(evaluate={"split": "dev"}), counts(dev=0), check).endswith("allowed here: test")
    assert "neither dev nor test has a judgement above 0" in refusal(job(), counts(dev=0, test=0), check)


def test_no_documents():
    held = counts()
    held["documents"] = {"read": 10, "accepted": 0, "rejected": {"empty text": 7, "not JSON": 3}, "cut": 0}
    message = refusal(job(), held)
    assert "folder/corpus.jsonl" in message
    assert "10 read; rejected: empty text 7, not JSON 3" in message
    assert '"_id"' in message


def test_a_field_that_no_document_has():
    requirements.check(job(), counts() | {"fields": {"year": 1}})
    message = refusal(job(), counts() | {"fields": {"year": 1, "yaer": 0}})
    assert message.startswith("corpus.fields.yaer: no document has it")

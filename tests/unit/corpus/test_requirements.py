"""Specs that ask for what a corpus lacks."""

import contextlib
import copy

import pytest

from rayhier.corpus import requirements
from rayhier.spec import InputError

from .conftest import job

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
BEIR = {"type": "beir", "path": "folder"}
MINE = {"type": "jsonl", "documents": "d.jsonl", "queries": "q.jsonl"}


def held(relevant=(), **changed):
    """COUNTS with other entries, and without judgements above 0 in some splits."""
    counts = copy.deepcopy(COUNTS) | changed
    for split in relevant:
        counts["splits"][split]["relevant"] = 0
    return counts


def lost(reason, number):
    return {"read": number, "accepted": 0, "rejected": {reason: number}, "cut": 0}


NO_TRAIN = {"judgements": COUNTS["judgements"] | {"train": lost("unknown document", 127)}}
OF_IVF, OF_TREE = ({"router": {"type": "learned_ivf", "branching": 21}}, {"router": {"type": "retreever", "depth": 5}})
BODY = {"corpus": MINE | {"query_columns": {"text": "body"}}}
SUPERVISED = {"train": {"objective": "supervised"}}
REFUSED = [
    (BODY, held(queries=lost("missing key of the text", 500)), r"corpus\.queries: key 'body' .* 500 of 500 queries"),
    ({}, held(["train"], **NO_TRAIN), r"corpus: no train judgement accepted \(127 read; .*unknown document 127"),
    (OF_IVF, held(), r"router\.branching: .* 21 leaves; allowed: at most as many leaves as documents \(20\)"),
    (OF_TREE, held(), r"router\.depth: got 5, 32 leaves; allowed: at most as many leaves as documents \(20\)"),
    (SUPERVISED, held(["train"]), r"train\.objective: got 'supervised'.*unknown query 10\)"),
    ({}, held(documents=lost("empty text", 10)), r"corpus\.jsonl: no document accepted .*empty text 10.*\"_id\""),
    ({}, held(fields={"year": 1, "yaer": 0}), r"corpus\.fields\.yaer: no document has it"),
]


@pytest.mark.parametrize(("sections", "counts", "said"), REFUSED)
def test_what_a_corpus_lacks_is_named(sections, counts, said):
    with pytest.raises(InputError, match=said):
        requirements.check(job(**{"corpus": BEIR, "router": {"type": "learned_ivf"}} | sections), counts)


@pytest.mark.parametrize(
    ("split", "without", "said"),
    [
        ("test", ["dev"], None),
        ("test", ["test"], "allowed here: dev"),
        ("dev", ["dev"], "allowed here: test"),
        ("test", ["dev", "test"], "allowed here: none, neither dev nor test has a judgement above 0"),
    ],
)
def test_nothing_to_evaluate_on(split, without, said):
    spec = job(BEIR, evaluate={"split": split}, router={"type": "learned_ivf"})
    with pytest.raises(InputError, match=f"{said}$") if said else contextlib.nullcontext():
        requirements.check_split(spec, held(without))

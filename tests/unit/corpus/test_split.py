"""Splits by hash, of whole families of queries."""

from collections import Counter

import pytest

from rayhier.corpus.row_checks import Judgement
from rayhier.corpus.split import assign, cut
from rayhier.dataset.families import normal
from rayhier.dataset.holdout import hash_ids


def test_a_hash_worked_out_elsewhere():
    # printf %s q1 | b2sum | cut -c1-16
    assert hash_ids(["q1"]).tolist() == [0x40AAE5431C38DBA7]


def log(questions, times, answers):
    """A log that has each question several times, under new ids; question n is answered by document n % answers."""
    rows = [
        Judgement(f"q{n}~{again}", f"d{n % answers}", grade)
        for n in range(questions)
        for again in range(times)
        for grade in (1, 0)
    ]
    spelled = ("question {}", "Question  {}?", "QUESTION {} .")
    texts = {row.query_id: spelled[int(row.query_id[-1]) % 3].format(row.query_id.split("~")[0]) for row in rows}
    return rows, texts


@pytest.mark.parametrize(("questions", "times", "answers"), [(400, 3, 200), (60, 9, 60), (1_000, 1, 1)])
def test_no_text_is_in_train_and_dev_nor_an_answer_if_many_families_remain(questions, times, answers):
    rows, texts = log(questions, times, answers)
    train, dev, counts = cut(rows, texts)
    assert Counter(train + dev) == Counter(rows)

    def shared(of):
        return {of(row) for row in train if row.grade} & {of(row) for row in dev if row.grade}

    assert not shared(lambda row: normal(texts[row.query_id]))
    kind = (answers, "the text or an answer") if answers > 1 else (questions, "nothing")
    assert (counts["families"], counts["shared"]) == kind
    assert bool(shared(lambda row: row.doc_id)) == (counts["shared"] == "nothing")
    assert 0.08 <= len(dev) / len(rows) <= 0.1
    assert cut(rows[::-1], texts)[1] == dev[::-1], "whatever the order"


def test_assign_makes_80_10_10():
    places = list(assign({f"q:{n}": f"text {n}" for n in range(10_000)}).values())
    shares = {split: places.count(split) / len(places) for split in ("train", "dev", "test")}
    assert shares == pytest.approx({"train": 0.8, "dev": 0.1, "test": 0.1}, abs=0.01)

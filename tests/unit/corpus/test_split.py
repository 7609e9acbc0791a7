"""Splits by hash of the id."""

import pytest

from rayhier.corpus.check import Judgement
from rayhier.corpus.split import assign, cut_dev, fraction

TRAIN = [Judgement(f"q{n}", doc_id, 1) for n in range(1_000) for doc_id in ("a", "b")]


def test_a_hash_worked_out_elsewhere():
    # printf %s q1 | b2sum | cut -c1-16
    assert fraction("q1") == pytest.approx(0x40AAE5431C38DBA7 / 2**64)


def test_dev_is_a_tenth_of_the_queries_with_all_their_judgements():
    train, dev = cut_dev(TRAIN)
    assert sorted(train + dev, key=str) == sorted(TRAIN, key=str)
    moved = {one.query_id for one in dev}
    assert moved.isdisjoint(one.query_id for one in train)
    assert 70 <= len(moved) <= 130
    assert len(dev) == 2 * len(moved)


def test_a_query_keeps_its_split_whatever_stands_beside_it():
    dev = {one.query_id for one in cut_dev(TRAIN)[1]}
    half = {one.query_id for one in cut_dev(TRAIN[::-2])[1]}
    assert half == dev


@pytest.mark.parametrize(("queries", "wanted"), [(0, 0), (1, 0), (2, 1), (5, 1), (9, 1)])
def test_of_few_queries_one_is_devs(queries, wanted):
    rows = [Judgement(f"few{n}", "a", 1) for n in range(queries)]
    train, dev = cut_dev(rows)
    assert (len(train), len(dev)) == (queries - wanted, wanted)
    assert all(fraction(one.query_id) > fraction(dev[0].query_id) for one in train if dev)


def test_assign_makes_80_10_10():
    places = [assign(f"q:{n}") for n in range(10_000)]
    shares = {split: places.count(split) / len(places) for split in ("train", "dev", "test")}
    assert shares == pytest.approx({"train": 0.8, "dev": 0.1, "test": 0.1}, abs=0.01)

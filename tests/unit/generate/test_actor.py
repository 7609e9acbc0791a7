"""Actors of the generate stage: documents that are drawn, and work that is not done twice."""

import pytest
import torch

from rayhier.generate import ray as stage
from rayhier.generate.ray import last_hash
from rayhier.spec import JobSpec
from rayhier.storage import files
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt
from rayhier.storage.pair_source import describe

from .conftest import PARTS, by_hand


@pytest.fixture
def generate(make_corpus, tiny_writer, tmp_path, monkeypatch):
    """`generate(fails_at=…, key=value, …)`: the stage without a cluster; its files, and the parts that were written."""
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    threads = torch.get_num_threads()

    def run(corpus=None, fails_at=None, name="made", **own):
        corpus = corpus or make_corpus()
        made = []

        def stream(items, actor, arguments, _):
            one = actor(**arguments)
            for item in items:
                if item["part"] == fails_at:
                    raise KeyboardInterrupt
                made.append(item["part"])
                yield one(item)

        monkeypatch.setattr(stage, "stream", stream)
        generated = {"type": "model", "model": str(tiny_writer), "per_document": 2, **own}
        tree = {"name": "test", "workdir": "unused", "corpus": {"type": "python_docs"}, "encoder": {"model": "unused"}}
        spec = JobSpec.model_validate({**tree, "train": {"type": "hce", "generated": generated}})
        with Attempt.start(Place(tmp_path / "generated" / name)) as attempt:
            output = stage.build(spec, describe(spec.train.generation), corpus, attempt)
            published = attempt.publish("generated", {}, output)
        return published, made

    yield run
    torch.set_num_threads(threads)


def digests(artifact):
    return {file.name: file.sha256 for file in artifact.record.files}


def test_an_interrupted_run_goes_on_with_the_missing_parts_and_writes_the_same(generate, make_corpus):
    corpus = make_corpus()
    whole, made = generate(corpus, name="whole")
    assert made == PARTS
    with pytest.raises(KeyboardInterrupt):
        generate(corpus, fails_at=PARTS[1])
    again, made = generate(corpus)
    assert made == PARTS[1:]
    assert digests(again) == digests(whole)
    assert sorted(digests(whole)) == ["pairs.parquet", "queries.parquet", "rejected.parquet"]
    counts = whole.record.counts["pairs"]
    assert counts["read"] == 12 == counts["accepted"] + sum(counts["rejected"].values())


def test_only_so_many_documents_are_drawn(generate, make_corpus):
    corpus = make_corpus()
    made, _ = generate(corpus, most=4)
    order = sorted((f"d{row}" for row in range(6)), key=lambda name: by_hand(name, 0))
    paired = files.read_table(made.path("pairs.parquet"))["doc_id"].to_pylist()
    assert made.record.counts["pairs"]["read"] == 8
    assert set(paired) <= set(order[:4])
    assert last_hash(corpus, 4) == by_hand(order[3], 0)
    assert last_hash(corpus, 6) is None


def test_queries_of_passages_belong_to_whole_documents(generate, make_corpus):
    made, _ = generate(make_corpus(parents=["a", "a", "b", "b", "b", "c"]))
    assert set(files.read_table(made.path("pairs.parquet"))["doc_id"].to_pylist()) == {"a", "b", "c"}

"""MTEB evaluates an index as a searcher, and its encoder as a model, by its own mock task; a run's corpus is a task."""

import json
import shutil
from pathlib import Path

import mteb
import pytest
from mteb.mocks.mock_tasks.retrieval import MockRetrievalTask, base_retrieval_datasplit
from mteb.models.models_protocols import EncoderProtocol, SearchProtocol

import rayhier
from rayhier.adapters.mteb import RayhierEncoder, RayhierSearch, corpus_task
from rayhier.spec import InputError

from ..conftest import make_corpus, write_spec
from ..integration.in_process import make
from .conftest import server_of


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def scores(model, task, split):
    results = mteb.evaluate(model, task, cache=None, co2_tracker=False)
    (result,) = results.task_results
    (score,) = result.scores[split]
    return score


def test_an_index_answers_the_mock_task(index):
    searcher = RayhierSearch(index)
    assert isinstance(searcher, SearchProtocol)
    assert scores(searcher, MockRetrievalTask(), "test")["recall_at_10"] == 1


def test_an_encoder_answers_the_mock_task(index):
    encoder = RayhierEncoder(index)
    assert isinstance(encoder, EncoderProtocol)
    assert scores(encoder, MockRetrievalTask(), "test")["recall_at_10"] == 1


def test_an_index_of_other_documents_is_refused(trained):
    with rayhier.open(trained) as opened, pytest.raises(InputError, match="40 documents that differ from the task"):
        RayhierSearch(opened).index(base_retrieval_datasplit()["corpus"])


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory, tiny_model):
    """Workdir of a run over the tiny corpus, with its report."""
    folder = tmp_path_factory.mktemp("evaluated")
    make(write_spec(folder, make_corpus(folder / "corpus"), tiny_model))
    return folder / "work"


def reported(work: Path, system: str) -> float:
    return json.loads((work / "report.json").read_text())["systems"][system]["nDCG@10"]


def test_a_corpus_as_a_task_gives_what_the_run_reports(evaluated, tmp_path):
    task = corpus_task(str(evaluated))
    searched = scores(RayhierSearch(evaluated), task, "test")["ndcg_at_10"]
    assert searched == pytest.approx(reported(evaluated, "learned_ivf+bm25"), abs=1e-4)
    encoder = scores(RayhierEncoder(evaluated), task, "test")["ndcg_at_10"]
    assert encoder == pytest.approx(reported(evaluated, "exact_same_encoder"), abs=1e-4)
    with server_of(shutil.copytree(evaluated, tmp_path / "work"), tmp_path / "token") as client:
        assert scores(RayhierSearch(client), task, "test")["ndcg_at_10"] == pytest.approx(searched, abs=1e-4)


def test_other_splits_and_corpora_are_refused(evaluated, trained):
    assert corpus_task(str(evaluated), "dev").metadata.eval_splits == ["dev"]
    with pytest.raises(InputError, match="no judged test queries; allowed: a split in corpus"):
        corpus_task(str(trained))

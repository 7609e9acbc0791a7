"""MTEB evaluates an index as a searcher, and its encoder as a model, by its own mock task; a run's corpus is a task."""

import mteb
import pytest
from mteb.mocks.mock_tasks.retrieval import MockRetrievalTask, base_retrieval_datasplit
from mteb.models.models_protocols import EncoderProtocol, SearchProtocol

import rayhier
from rayhier.adapters.mteb import RayhierEncoder, RayhierSearch
from rayhier.spec import InputError


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
    with rayhier.open(trained) as opened, pytest.raises(InputError, match="38 documents that the task's corpus"):
        RayhierSearch(opened).index(base_retrieval_datasplit()["corpus"])

"""Which commit a data set of the hub is at, asked of a hub on this machine."""

import json
import os
import socket

import pytest
from huggingface_hub import constants

from rayhier.spec import InputError
from rayhier.storage import hub_data

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(answering, monkeypatch):
    """`hub(GET=(status, body))`: what a hub on this machine says."""
    monkeypatch.setattr(constants, "ENDPOINT", os.environ["AWS_ENDPOINT_URL"])
    return answering


@pytest.mark.parametrize("path", ["team/set", "team/set@main"])
def test_the_hub_says_which_commit_a_branch_is(hub, path):
    hub(GET=(200, json.dumps({"id": "team/set", "sha": COMMIT, "siblings": []})))
    assert hub_data.commit("corpus.path", path) == COMMIT


@pytest.mark.parametrize("path", ["team/other", "team/set@v2"])
def test_what_the_hub_does_not_know_is_refused(hub, path):
    hub(GET=(404, '{"error": "?"}'))
    with pytest.raises(InputError, match=f"corpus.path: got '{path}', no such folder. http://127.* allowed: a fold"):
        hub_data.commit("corpus.path", path)


def test_a_commit_is_not_asked_for(monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert hub_data.commit("corpus.path", f"team/set@{COMMIT}") == COMMIT
    with pytest.raises(InputError, match="did not provide"):
        hub_data.ask("corpus.path", f"team/set@{COMMIT}")


def test_a_hub_that_never_answers(monkeypatch):
    monkeypatch.setattr(hub_data, "HUB_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(InputError, match="Timeout"):
            hub_data.commit("corpus.path", "team/set")

"""What a deployment refuses to be told, before anything starts."""

import pytest
from pydantic import ValidationError

from rayhier.serve.app import build, check
from rayhier.serve.args import ServeArgs
from rayhier.spec import InputError

REFUSED = [
    ({"workdir": "runs/x"}, "workdir: got 'runs/x'"),
    ({"token_file": "token"}, "token_file: got 'token'"),
    ({"shard_seconds": 4.0}, "shard_seconds: got 4"),
    ({"reranker_seconds": 4.0}, "reranker_seconds: got 4"),
    ({"limits": {"seconds": 4.0, "max_k": 6}}, "limits.max_k: got 6"),
    ({"limits": {"seconds": 4.0, "max_beam": 1}}, "limits.max_beam: got 1"),
]


def test_what_cannot_be_served_is_refused_with_what_is_allowed(published):
    limits = {"seconds": 4.0, "max_k": 7, "max_beam": 2}
    fits = {"workdir": str(published), "shard_seconds": 1.0, "reranker_seconds": 1.0, "limits": limits}
    build(ServeArgs(**fits))
    for given, named in REFUSED:
        with pytest.raises(InputError, match=rf"^{named}.*; allowed: "):
            build(ServeArgs(**fits | given))


def test_an_index_of_another_model(work):
    path = work / "current.json"
    path.write_text(path.read_text().replace("0123456789ab", "0123456789aa"))
    with pytest.raises(InputError, match="got model 0123456789ab; allowed: 0123456789aa"):
        check(ServeArgs(workdir=str(work)))


@pytest.mark.parametrize(
    "given", [{"token": "sesame-1"}, {"shard_groups": 0}, {"cors_origins": ["https://a.org/path"]}]
)
def test_unknown_and_impossible_arguments(given):
    with pytest.raises(ValidationError):
        ServeArgs(workdir="/w", **given)


def test_a_proxy_that_answers_other_machines_needs_a_token(published, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "1")
    with pytest.raises(InputError, match="token_file: got none with RAY_SERVE_ENABLE_HA_PROXY=1"):
        check(ServeArgs(workdir=str(published)))
    (tmp_path / "token").write_text("sesame-1\n")
    check(ServeArgs(workdir=str(published), token_file=str(tmp_path / "token")))


def test_one_replica_writes_where_there_is_a_token_for_it(published, tmp_path):
    (tmp_path / "write").write_text("poppy")
    for file in (None, str(tmp_path / "write")):
        ingress = build(ServeArgs(workdir=str(published), write_token_file=file))._bound_deployment
        writer, *groups = ingress.init_args[4:]
        assert [group._bound_deployment.init_kwargs for group in groups] == [{"follows": file is not None}] * 2
        assert (writer is None) == (file is None)
    assert (writer._bound_deployment.name, writer._bound_deployment.num_replicas) == ("writer", 1)
    assert list(writer._bound_deployment.init_args[3:]) == groups

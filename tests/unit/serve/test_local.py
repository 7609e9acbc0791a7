"""From the shipped config to one that can be deployed, and what is refused before Ray starts."""

import socket
from pathlib import Path

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from rayhier.serve.__main__ import hint, main
from rayhier.serve.local import prepare

SHIPPED = Path(__file__).parents[3] / "jobs" / "serve.yaml"


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text("sesame-1\n")
    return path


def test_the_shipped_config_becomes_absolute(published, token, port, monkeypatch):
    monkeypatch.chdir(published.parent)
    local = prepare(SHIPPED, published.name, str(token), port)
    schema = ServeDeploySchema.model_validate(local.config)
    assert (schema.http_options.host, schema.http_options.port) == ("127.0.0.1", port)
    (application,) = schema.applications
    assert application.import_path == "rayhier.serve.app:build"
    assert application.args == {"workdir": str(published), "token_file": str(token)}
    assert local.url == f"http://127.0.0.1:{port}"


def test_as_shipped_its_paths_must_be_changed():
    args = yaml.safe_load(SHIPPED.read_text())["applications"][0]["args"]
    assert args["workdir"].startswith("/absolute/path")
    assert args["token_file"] is None


def test_the_hint_names_the_tokens_file_alone(published, token, port):
    said = hint(prepare(SHIPPED, str(published), str(token), port))
    assert f"curl -s http://127.0.0.1:{port}/v1/search" in said
    assert f"$(cat '{token}')" in said
    assert "sesame" not in said
    assert "Authorization" not in hint(prepare(SHIPPED, str(published), None, port))


CONFIGS = {
    "missing": (None, "cannot be read: No such file"),
    "not YAML": ("a: [", "not YAML"),
    "empty": ("", "a Serve config with one application"),
    "a list": ("[1]", "a Serve config with one application"),
    "two applications": ("applications: [{}, {}]", "a Serve config with one application"),
    "no import path": ("applications: [{name: a}]", "import_path"),
    "unknown argument": ("applications: [{name: a, import_path: 'a:b', args: {wordir: x}}]", "wordir: Extra inputs"),
    "a port that is none": (
        "{http_options: {port: x}, applications: [{name: a, import_path: 'a:b'}]}",
        "http_options.port",
    ),
}


@pytest.mark.parametrize(("text", "said"), CONFIGS.values(), ids=CONFIGS)
def test_a_config_that_cannot_be_deployed(published, tmp_path, capsys, text, said):
    path = tmp_path / "serve.yaml"
    if text is not None:
        path.write_text(text)
    assert main([str(path), "--workdir", str(published)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: {path}: ")
    assert said in shown


def test_a_port_in_use(published, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main([str(SHIPPED), "--workdir", str(published), "--port", str(port)]) == 2
    assert capsys.readouterr().err == (
        f"error: port: got {port}; another process listens there; allowed: a free port of 127.0.0.1, 1 to 65535\n"
    )


@pytest.mark.parametrize("port", ["0", "-1", "65536"])
def test_a_port_that_is_none(published, capsys, port):
    assert main([str(SHIPPED), "--workdir", str(published), "--port", port]) == 2
    assert "port" in capsys.readouterr().err


def test_no_index_no_token(tmp_path, published, capsys):
    assert main([str(SHIPPED), "--workdir", str(tmp_path)]) == 2
    assert "build an index with python -m rayhier.run" in capsys.readouterr().err
    assert main([str(SHIPPED), "--workdir", str(published), "--token-file", str(tmp_path / "none")]) == 2
    assert "token_file: " in capsys.readouterr().err

"""From the shipped config to one that can be deployed, and what is refused before Ray starts."""

import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
import ray
import yaml
from ray.serve.schema import ServeDeploySchema

from rayhier.serve import __main__ as command
from rayhier.serve import app as local_module
from rayhier.serve.__main__ import hint, main
from rayhier.serve.app import checked
from rayhier.serve.config import look
from rayhier.spec import InputError

JOBS = Path(__file__).parents[3] / "jobs"
SHIPPED = JOBS / "serve.yaml"


@pytest.fixture
def token(tmp_path):
    (tmp_path / "token").write_text("sesame-1\n")
    return tmp_path / "token"


def test_the_shipped_config_becomes_absolute(published, token, port, monkeypatch):
    monkeypatch.chdir(published.parent)
    local = checked(look(SHIPPED, published.name, str(token), port))
    schema = ServeDeploySchema.model_validate(local.config)
    (application,) = schema.applications
    assert application.import_path == "rayhier.serve.app:build"
    assert application.args == {"workdir": str(published), "token_file": str(token)}
    assert local.url == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("name", ["rayservice.yaml", "kind/rayservice.yaml"])
def test_serve_and_an_index_accept_the_configs_for_kubernetes(name, published, token, port, tmp_path):
    config = tmp_path / "serve.yaml"
    config.write_text(yaml.safe_load((JOBS / name).read_text())["spec"]["serveConfigV2"])
    assert checked(look(config, str(published), str(token), port)).host == "0.0.0.0"


def test_the_hint_names_the_tokens_file_alone(token):
    said = hint("http://here", str(token))
    assert f"$(cat '{token}')" in said
    assert "sesame" not in said
    assert "Authorization" not in hint("http://here", None)


def test_other_machines_are_answered_only_behind_a_limit_for_heads(published, token, port, tmp_path, monkeypatch):
    config = tmp_path / "serve.yaml"
    config.write_text(SHIPPED.read_text().replace("host: 127.0.0.1 ", "host: 0.0.0.0 "))
    with pytest.raises(InputError, match=r"http_options\.host: got '0\.0\.0\.0', which other machines reach"):
        checked(look(config, str(published), str(token), port))
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "1")
    assert checked(look(config, str(published), str(token), port)).host == "0.0.0.0"
    monkeypatch.delenv("RAY_SERVE_ENABLE_HA_PROXY")
    config.write_text(config.read_text().replace("token_file: null", "behind_front: true"))
    assert checked(look(config, str(published), str(token), port)).args.behind_front
    with pytest.raises(InputError, match=r"got '0\.0\.0\.0', which .* allowed: .*args.token_file"):
        checked(look(config, str(published), None, port))


CONFIGS = {
    "a: [": "not YAML",
    "applications: [{}, {}]": "applications: got none or several",
    "applications: [{name: a, import_path: 'a:b', args: {wordir: x}}]": "wordir: got no argument",
    "{http_options: {port: x}, applications: [{name: a, import_path: 'a:b'}]}": "http_options.port",
}


def test_a_config_that_cannot_be_deployed(published, tmp_path, capsys):
    path = tmp_path / "serve.yaml"
    for text, said in CONFIGS.items():
        path.write_text(text)
        assert main([str(path), "--workdir", str(published)]) == 2
        shown = capsys.readouterr().err
        assert f"error: {path}: " in shown
        assert said in shown


LIGHT = """
import sys
sys.modules.update(dict.fromkeys(("torch", "ray", "fastapi", "transformers", "faiss")))
from rayhier.serve.__main__ import main
sys.exit(main())
"""


def test_mistakes_are_said_before_anything_heavy_is_imported(published, tmp_path, port):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = taken.getsockname()[1]
        for given, said in (
            ([SHIPPED, "--workdir", published, "--port", used], f"port: got {used}, where another process listens"),
            ([SHIPPED, "--workdir", tmp_path, "--port", port], f"{tmp_path}/current.json: no such file"),
            ([SHIPPED, "--workdir", published, "--token-file", tmp_path / "none"], "token_file: "),
            ([tmp_path / "none.yaml", "--workdir", published], f"{tmp_path}/none.yaml: cannot be read"),
        ):
            command = [sys.executable, "-c", LIGHT, *map(str, given)]
            one = subprocess.run(command, capture_output=True, text=True, check=False)
            assert one.returncode == 2, one.stderr
            assert one.stderr.startswith(f"error: {said}")
            assert "Traceback" not in one.stderr


def test_token_files_of_the_shell_may_be_relative(tmp_path, published, capsys, monkeypatch):
    (tmp_path / "write").write_text("two words\n")
    monkeypatch.chdir(tmp_path)
    assert main([str(published), "--write-token-file", "write"]) == 2
    assert str(tmp_path / "write") in capsys.readouterr().err


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_server_that_is_stopped_shuts_serve_down(published, port, capsys, monkeypatch, stop, code):
    ended = []
    monkeypatch.setattr(local_module, "deploy", lambda _: None)
    monkeypatch.setattr(local_module.serve, "shutdown", lambda: ended.append(signal.getsignal(stop)))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(command.threading, "Event", lambda: Mock(wait=lambda: signal.raise_signal(stop)))
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    ends = nullcontext() if code else pytest.raises(SystemExit, match=r"^0$")
    try:
        with ends:
            assert main([str(SHIPPED), "--workdir", str(published), "--port", str(port)]) == code
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert ended == [signal.SIG_IGN]
    assert capsys.readouterr().out.endswith("\nstopping\n")

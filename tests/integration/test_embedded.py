"""`rayhier serve WORKDIR`, as a user starts it: it does what every server does, and ends as it is told."""

import json
import re
import signal
import subprocess
import sys
import urllib.request

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rayhier
from rayhier.__main__ import main
from rayhier.search.snapshot import Snapshot

from .conformance import TOKEN, WRITE_TOKEN, conforms, writes

PATIENCE = ["--set", "limits.queue_seconds=30"]
"""Tests of other processes make this server wait."""


@pytest.fixture
def process(work, tmp_path, port):
    """The command as a script's background job, which starts without SIGINT; once it says where it serves."""
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "write").write_text(WRITE_TOKEN)
    command = [sys.executable, "-m", "rayhier", "serve", str(work), "--port", str(port)]
    command += ["--token-file", str(tmp_path / "token"), "--write-token-file", str(tmp_path / "write"), *PATIENCE]
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        first = started.stdout.readline()
        assert first.startswith(f"serving at http://127.0.0.1:{port}"), started.communicate()
        yield started
        started.kill()


def test_it_does_what_every_server_does(process, work, built, port):
    searcher = Snapshot.open(work)
    conforms(f"http://127.0.0.1:{port}", searcher, built, ["shards-0"])
    writes(f"http://127.0.0.1:{port}", searcher)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()[-1]) == (130, "stopped")
    assert "Traceback" not in said


def test_it_ends_with_0_where_it_is_told_to(process):
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in said


def test_the_shell_changes_and_reads_its_documents(process, work, port, tmp_path, capsys, monkeypatch):
    hints = list[str]()
    monkeypatch.setattr("rayhier.serve.shell.say", hints.append)
    url = f"http://127.0.0.1:{port}"
    with rayhier.open(work) as index:
        fields, vector_NM = index.spec.corpus.fields, index.encode(["quagga one", "quagga two"])

    def shell(command: str, *arguments: object, token: str = "write", address: str = url) -> tuple[int, list[str], str]:
        token_file = ["--token-file", str(tmp_path / token)] if token else []
        code = main(["index", command, address, *map(str, arguments), *token_file])
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err

    texts = {f"new{n:04d}": f"quagga number {n}" for n in range(1_099)} | {"of two\u2028lines": "quagga"}
    rows = [{"key": name, "text": text, "unknown": 1} for name, text in texts.items()]
    (tmp_path / "new.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert shell("add", tmp_path / "new.jsonl", "--id", "key")[:2] == (
        0,
        ["log 3: 1,100 documents written, 0 of them in place of others"],
    )
    vectors = pa.array(vector_NM.tolist(), pa.list_(pa.float32()))
    table = pa.table({"id": ["new0001", "given"], "text": ["quagga one", "quagga two"], "vector": vectors})
    pq.write_table(table, tmp_path / "given.parquet")
    assert "1 in the index already: 'new0001'" in shell("add", tmp_path / "given.parquet")[2]
    assert shell("add", tmp_path / "given.parquet", "--upsert")[:2] == (
        0,
        ["log 4: 2 documents written, 1 of them in place of others"],
    )
    code, (first, second), _ = shell("get", "given", "new0001", token="token")
    assert (code, json.loads(first)["text"], json.loads(second)["text"]) == (0, "quagga two", "quagga one")
    assert set(json.loads(first)["fields"]) == set(fields)
    code, listed, _ = shell("list", "--after", "given", "--limit", 1_050, token="token")
    after = [json.loads(line)["id"] for line in listed]
    assert (code, len(after), after == sorted(after)) == (0, 1_050, True)
    assert hints == [f"1,050 documents. Others follow: give --limit, or --after {after[-1]}"]
    (tmp_path / "ids").write_text("\n".join(texts))
    assert shell("delete", "given", "--file", tmp_path / "ids")[:2] == (0, ["log 6: 1,101 documents deleted"])

    (tmp_path / "bad.jsonl").write_text('{"id": "a", "text": "good"}\n{"id": 1.5, "text": "bad"}')
    missing = tmp_path / "missing.jsonl"
    for arguments, said in [
        (("add", tmp_path / "bad.jsonl"), "bad.jsonl: row 2: wrong type; allowed: rows as in the corpus. Nothing was"),
        (("add", missing), "missing.jsonl: no such file"),
        (("delete", "new0001"), "ids: 1 not in the index: 'new0001'. Nothing was changed; allowed: ids of documents"),
        (("delete",), "ids: got none; allowed: ids of documents in the index"),
        (("get", "new0001"), "id: got 'new0001'; allowed: the id of a document in the index"),
        (("get", ".."), "id: got '..'; allowed: the id of a document, except '.' and '..'"),
    ]:
        code, printed, error = shell(*arguments)
        assert (code, printed) == (2, [])
        assert error.startswith("error: ")
        assert said in error
    assert "error: " in shell("delete", "d0", token="token")[2]
    assert shell("get", "d0", token="")[0] == 2
    assert "Connection refused" in shell("get", "d0", address="http://127.0.0.1:9")[2]
    with pytest.raises(SystemExit):
        shell("fold")


def test_the_sample_query_that_it_prints_is_answered(process, port):
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    body = re.search(r"-d '(.*)'", "".join(lines))
    assert body is not None
    head = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/search", body[1].encode(), head)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert len(json.loads(answer.read())["results"]) == 3


REFUSED = {
    "no index": (["nowhere"], "current.json: no such file"),
    "another machine without a token": (["WORK", "--host", "0.0.0.0"], "--host: got 0.0.0.0, which other machines"),
    "an unknown argument": (
        ["WORK", "--set", "limits.max_q=5"],
        "--set limits.max_q: got no argument of a server",
    ),
    "a limit below the spec": (["WORK", "--set", "limits.max_k=1"], "limits.max_k: got 1; allowed: at least"),
    "no port": (["WORK", "--port", "70000"], "port: got 70000; allowed: 1 to 65535"),
    "a token's file without one": (["WORK", "--token-file", "/dev/null"], "token_file"),
    "a config without a workdir": (["jobs/serve.yaml"], "--workdir: got none with a Serve config"),
}


@pytest.mark.parametrize(("arguments", "said"), REFUSED.values(), ids=REFUSED)
def test_mistakes_are_said_in_one_line(work, port, arguments, said):
    given = [str(work) if part == "WORK" else part for part in arguments]
    given += [] if "--port" in given else ["--port", str(port)]
    done = subprocess.run(
        [sys.executable, "-m", "rayhier", "serve", *given], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    wrong = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(wrong) == 1
    assert said in wrong[0]
    assert "Traceback" not in done.stderr

"""`rayhier try DIR`: a folder of texts in, a served page out."""

from fastapi.testclient import TestClient

from rayhier.__main__ import main
from rayhier.serve.embedded import Embedded

from .in_process import in_this_process


def test_a_folder_of_texts_becomes_a_served_page_and_a_second_call_goes_on(tmp_path, port, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    in_this_process(monkeypatch)
    (tmp_path / "notes").mkdir()
    for name, text in {
        "pruning": "Cut the apple back. Use a saw.",
        "watering": "Two cans of water. In the morning.",
    }.items():
        (tmp_path / "notes" / f"{name}.txt").write_text(text)
    asked = []

    def serve(args, host, port, ready):
        embedded = Embedded(args)
        with TestClient(embedded.app()) as client:
            assert "<html" in client.get("/").text
            asked.append(client.post("/v1/search", json={"query": "when to water", "k": 1}).json()["results"][0]["id"])
        embedded.close()
        ready()

    monkeypatch.setattr("rayhier.serve.embedded.serve", serve)
    for said in ("wrote runs/notes/try.yaml", "runs/notes/try.yaml exists and is used again"):
        assert main(["try", "notes", "--port", str(port)]) == 0
        printed = capsys.readouterr()
        assert said in printed.out + printed.err
        assert f"serving at http://127.0.0.1:{port}" in printed.out
    assert asked == ["watering.txt"] * 2
    assert len(list((tmp_path / "runs" / "notes" / "index").iterdir())) == 1, "the second call builds nothing"

    assert main(["try", "other", "--workdir", "runs/notes"]) == 2
    assert "runs/notes/try.yaml is about other data" in capsys.readouterr().err

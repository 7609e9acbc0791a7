"""A corpus of documents alone: trained on, indexed and searched, and nothing measured."""

import json

import pytest

from rayhier import run
from rayhier.job.outline import NOT_EVALUATED
from rayhier.search import __main__ as search_command
from rayhier.search.snapshot import Snapshot
from rayhier.storage import current, files
from rayhier.storage.artifact import Artifact

pytestmark = pytest.mark.usefixtures("cluster")


def trained(work):
    """Phases of the training."""
    return list(files.read_json(Artifact.open(next((work / "model").iterdir())).path("metrics.json")))


def test_documents_alone(tiny_spec, tiny_corpus, tmp_path, capsys, here):
    here()
    work = tmp_path / "work"
    source = f"{{type: jsonl, documents: {tiny_corpus}/corpus.jsonl, columns: {{id: _id}}}}"
    spec = str(tiny_spec(corpus=source, search="{k: 10, beam: auto}"))
    work.mkdir()
    (work / "report.json").write_text("of a run with judgements")
    for state in ("built", "published"):
        assert run.main([spec]) == 0
        printed = capsys.readouterr()
        summary = json.loads(printed.out.splitlines()[-1])
        stages = ("corpus", "embed", "train", "index", "calibrate")
        assert [(step["stage"], step["state"]) for step in summary["steps"]] == [(stage, state) for stage in stages]
        assert NOT_EVALUATED in printed.out
    assert set(current.read(work).artifacts) == {"corpus", "vectors", "model", "index", "calibration"}
    chosen = Snapshot.open(work).model.chosen
    assert chosen is not None
    assert (chosen.of, chosen.recall >= 0.99) == ("documents", True)
    assert not (work / "report.json").exists()
    assert trained(work) == ["encoder", "router"]

    assert search_command.main([str(work), "river stone", "-k", "3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 9


def test_documents_of_one_sentence_without_titles_teach_nothing(tiny_spec, tmp_path, here):
    here()
    (tmp_path / "plain.jsonl").write_text("".join(f'{{"id": "d{n}", "text": "oak elm {n}."}}\n' for n in range(60)))
    spec = tiny_spec(corpus=f"{{type: jsonl, documents: {tmp_path}/plain.jsonl}}")
    assert run.main([str(spec)]) == 0
    assert trained(tmp_path / "work") == ["router"]

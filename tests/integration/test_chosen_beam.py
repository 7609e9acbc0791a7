"""A beam that dev queries choose, from the spec to served answers."""

import json
import shutil

import pytest
from fastapi.testclient import TestClient

from rayhier import run
from rayhier.search.routing.chosen_beam import Calibration
from rayhier.search.snapshot import Snapshot
from rayhier.serve.args import ServeArgs
from rayhier.serve.embedded import Embedded
from rayhier.spec import InputError
from rayhier.storage import current

from ..conftest import TEXT

pytestmark = pytest.mark.usefixtures("cluster")
SEARCH = "{k: 10, mode: dense, beam: {recall: 0.9}}"


@pytest.fixture
def dev_corpus(tiny_corpus):
    """The tiny corpus with 40 of its 80 train queries as dev queries."""
    head, *rows = (tiny_corpus / "qrels" / "train.tsv").read_text().splitlines()
    for split, chosen in {"train": rows[:40], "dev": rows[40:]}.items():
        (tiny_corpus / "qrels" / f"{split}.tsv").write_text("\n".join([head, *chosen]) + "\n")
    return tiny_corpus


@pytest.mark.usefixtures("dev_corpus")
def test_a_beam_is_chosen_told_and_served(tiny_spec, tiny_model, tmp_path, here, capsys, monkeypatch):
    """The number format of queries is served too."""
    here()
    monkeypatch.setattr("rayhier.search.routing.query_precision.MOST_LOST", 1.0)
    encoder = f"{{model: {tiny_model}, max_length: 32}}"
    work, spec = tmp_path / "work", str(tiny_spec(search=SEARCH, encoder=encoder))
    assert run.main([spec]) == 0
    said = capsys.readouterr().out
    stages = [step["stage"] for step in json.loads(said.splitlines()[-1])["steps"]]
    assert stages[-3:] == ["index", "calibrate", "evaluate"]
    report = json.loads((work / "report.json").read_text())
    (chosen,) = report["beams"]
    assert (chosen["k"], chosen["queries"]) == (10, 40)
    assert 0.9 <= chosen["recall"] <= 1
    assert report["systems"]["learned_ivf"]["beam"] == chosen["beam"]
    assert [precision["queries"] for precision in report["precisions"]] == [40]

    now, searcher = current.read(work), Snapshot.open(work)
    calibration = Calibration.open(current.artifact(work, now, "calibration"))
    assert calibration is not None
    assert calibration.position_QK.shape == (40, 10)
    answers = searcher.search(TEXT.split())
    assert {len(answer.leaves) for answer in answers} == {chosen["beam"]}
    assert {len(answer.leaves) for answer in searcher.search(TEXT.split(), k=1)} == {calibration.chosen(0.9, 1).beam}

    served = Embedded(ServeArgs(workdir=str(work), shard_groups=2))
    client = TestClient(served.app())
    for text, expected in zip(TEXT.split(), answers, strict=True):
        body = client.post("/v1/search", json={"query": text}).json()
        assert [result["id"] for result in body["results"]] == [hit.id for hit in expected.hits]
        assert body["visited"]["leaves"] == expected.leaves
    index = client.get("/v1/index").json()
    assert (index["beam"], index["recall"]) == (chosen["beam"], pytest.approx(chosen["recall"], abs=1e-6))
    assert index["precision"] == searcher.model.query_encoder.precision == "int8"
    assert "text_encoder" not in vars(searcher.model), "loaded, though only documents need it"
    assert searcher.model.text_encoder.precision == "float32"
    served.close()

    # Another recall is read from the same calibration, another k is not.
    assert run.main([spec, "--set", "search.beam.recall=0.6"]) == 0
    steps = json.loads(capsys.readouterr().out.splitlines()[-1])["steps"]
    assert [step["stage"] for step in steps if step["state"] == "built"] == ["evaluate"]
    assert Snapshot.open(work).rules.default_beam <= chosen["beam"]
    assert run.main([spec, "--set", "search.k=5", "--stage", "calibrate"]) == 0
    steps = json.loads(capsys.readouterr().out.splitlines()[-1])["steps"]
    assert [step["state"] for step in steps] == ["built"]

    shutil.rmtree(work / "calibration" / current.read(work).artifacts["calibration"])
    with pytest.raises(InputError, match="calibration"):
        Snapshot.open(work)


def test_a_spec_that_calibrates_nothing_has_no_such_stage(built, here, capsys):
    here()
    fixed = [f"--set={value}" for value in ("search.hybrid.weight=0.1", "search.beam=3", "encoder.precision=float32")]
    assert run.main([str(built / "spec.yaml"), "--stage", "calibrate", *fixed]) == 2
    said = capsys.readouterr().err
    needed = "`search.hybrid.weight`, `cross_encoder.beside`, `encoder.precision` or `search.beam` auto, or a recall"
    assert f"--stage: got calibrate without {needed}" in said


@pytest.mark.usefixtures("dev_corpus")
def test_a_search_with_a_chosen_beam_may_be_re_ranked(tiny_spec, tiny_model, tmp_path, here):
    """The weight beside the cross-encoder is chosen before the beam is, by an automatic beam."""
    here()
    search = "{k: 10, beam: {recall: 0.9}, rerank: {type: rnr, budget: 5}}"
    spec = tiny_spec(search=search, cross_encoder=f"{{model: {tiny_model}, head: emb, precision: float32}}")
    assert run.main([str(spec)]) == 0
    report = json.loads((tmp_path / "work" / "report.json").read_text())
    (beside,) = report["besides"]
    assert (beside["queries"], beside["depth"]) == (40, 5)
    (answer,) = Snapshot.open(tmp_path / "work").search(["leaf root branch"], k=5)
    assert answer.calls == 5

"""A promised recall, from the spec to served answers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from rayhier import run
from rayhier.evaluate import __main__ as eval_command
from rayhier.search.calibration import Calibration
from rayhier.search.searcher import Searcher
from rayhier.serve.args import ServeArgs
from rayhier.serve.embedded import Embedded
from rayhier.spec import InputError
from rayhier.storage import current

from ..conftest import TEXT

pytestmark = pytest.mark.usefixtures("cluster")
BEAM = "{k: 10, beam: {type: recall, target: TARGET}}"


@pytest.fixture
def dev_corpus(tiny_corpus: Path) -> Path:
    """The tiny corpus with 40 of its 80 train queries as dev queries."""
    head, *rows = (tiny_corpus / "qrels" / "train.tsv").read_text().splitlines()
    for split, chosen in {"train": rows[:40], "dev": rows[40:]}.items():
        (tiny_corpus / "qrels" / f"{split}.tsv").write_text("\n".join([head, *chosen]) + "\n")
    return tiny_corpus


def test_a_promise_is_made_measured_and_served(
    dev_corpus: Path,
    tiny_spec: Callable[..., Path],
    tmp_path: Path,
    here: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    here()
    work, spec = tmp_path / "work", str(tiny_spec(search=BEAM.replace("TARGET", "0.9")))
    assert run.main([spec]) == 0
    said = capsys.readouterr().out
    stages = [step["stage"] for step in json.loads(said.splitlines()[-1])["steps"]]
    assert stages[-3:] == ["index", "calibrate", "evaluate"]
    promise = json.loads((work / "report.json").read_text())["promise"]
    assert (promise["k"], promise["queries"]) == (10, 40)
    assert promise["least"] >= 0.9
    assert "search.beam: recall: at least 0.9" in said
    assert "of the exact best 10 promised, from 40 dev queries; measured" in said

    now, searcher = current.read(work), Searcher.open(work)
    calibration = Calibration.open(current.artifact(work, now, "calibration"))
    assert calibration.floor_QK.shape == (40, 10)
    answers, exact = searcher.search(TEXT.split()), searcher.search(TEXT.split(), beam=searcher.rules.leaves)
    assert {len(answer.leaves) for answer in exact} == {searcher.rules.leaves}
    assert len({len(answer.leaves) for answer in answers}) > 1
    router = searcher.model.search_router
    for answer, floor_L in zip(answers, router.floors(searcher.model.encode(TEXT.split())), strict=True):
        assert set(answer.leaves) == {leaf for leaf, floor in enumerate(floor_L.tolist()) if floor >= router.floor}

    served = Embedded(ServeArgs(workdir=str(work), shard_groups=2))
    client = TestClient(served.app())
    for text, expected in zip(TEXT.split(), answers, strict=True):
        body = client.post("/v1/search", json={"query": text}).json()
        assert [result["id"] for result in body["results"]] == [hit.id for hit in expected.hits]
        assert body["visited"]["leaves"] == expected.leaves
    assert client.get("/v1/index").json()["recall"] == pytest.approx(promise["least"], abs=1e-6)
    served.close()

    asked = [str(work), "--queries", f"{dev_corpus}/queries.jsonl", "--judgements", f"{dev_corpus}/qrels/dev.tsv"]
    assert eval_command.main(asked) == 0
    assert f"search.beam: recall: at least {promise['least']:.2f}" in capsys.readouterr().out
    assert eval_command.main([*asked, "--beam", "3"]) == 0
    assert "promised" not in capsys.readouterr().out

    # Another target is read from the same calibration, another k is not.
    assert run.main([spec, "--set", "search.beam.target=0.6"]) == 0
    steps = json.loads(capsys.readouterr().out.splitlines()[-1])["steps"]
    assert [step["stage"] for step in steps if step["state"] == "built"] == ["evaluate"]
    assert Searcher.open(work).model.promised_beam().floor <= 0
    assert run.main([spec, "--set", "search.k=5", "--stage", "calibrate"]) == 0
    steps = json.loads(capsys.readouterr().out.splitlines()[-1])["steps"]
    assert [step["state"] for step in steps] == ["built"]

    shutil.rmtree(work / "calibration" / current.read(work).artifacts["calibration"])
    with pytest.raises(InputError, match="calibration"):
        Searcher.open(work)


REFUSED = {
    "three queries": (
        {"beam": "{type: recall, target: 0.9}"},
        3,
        "search.beam.target: got 0.9 with 3 dev queries; allowed: at least 20 dev queries",
    ),
    "too much for so few": (
        {"beam": "{type: recall, target: 0.98}"},
        40,
        "search.beam.target: got 0.98 with 40 dev queries; allowed: at least 49 dev queries",
    ),
}


@pytest.mark.parametrize(("given", "queries", "message"), REFUSED.values(), ids=REFUSED)
def test_too_few_dev_queries_are_refused_before_anything_is_trained(
    given: dict[str, str],
    queries: int,
    message: str,
    dev_corpus: Path,
    tiny_spec: Callable[..., Path],
    here: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    here()
    path = dev_corpus / "qrels" / "dev.tsv"
    path.write_text("\n".join(path.read_text().splitlines()[: queries + 1]) + "\n")
    spec = str(tiny_spec(search=f"{{k: 10, beam: {given['beam']}}}"))
    assert run.main([spec]) == 2
    assert message in capsys.readouterr().err
    assert not (dev_corpus.parent / "work" / "vectors").exists()


def test_a_spec_that_calibrates_nothing_has_no_such_stage(
    built: Path, here: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    here("evaluate")
    assert run.main([str(built / "spec.yaml"), "--stage", "calibrate", "--set", "search.hybrid.weight=0.1"]) == 2
    said = capsys.readouterr().err
    needed = "search.hybrid.weight auto, cross_encoder.beside auto, or search.beam of type recall"
    assert f"--stage: got calibrate without {needed}" in said


def test_a_promise_may_be_re_ranked(
    dev_corpus: Path,
    tiny_spec: Callable[..., Path],
    tiny_model: Path,
    tmp_path: Path,
    here: Callable[..., None],
) -> None:
    """The weight beside the cross-encoder is chosen before the promise can be kept, by an automatic beam."""
    here()
    search = BEAM.replace("TARGET", "0.9").replace("}}", "}, rerank: {type: rnr, budget: 5}}")
    spec = tiny_spec(search=search, cross_encoder=f"{{model: {tiny_model}, head: emb, precision: float32}}")
    assert run.main([str(spec)]) == 0
    report = json.loads((tmp_path / "work" / "report.json").read_text())
    (beside,) = report["besides"]
    assert (beside["queries"], beside["depth"]) == (40, 5)
    (answer,) = Searcher.open(tmp_path / "work").search(["leaf root branch"], k=5)
    assert answer.calls == 5

"""Planning: what makes a fingerprint, what is refused before a cluster is touched, what is shown."""

from collections.abc import Callable
from pathlib import Path

import pytest
import ray

from rayhier import run
from rayhier.plan import STAGES, make_plan, show
from rayhier.spec import InputError, load

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))


def fingerprints(spec: Path, *overrides: str) -> dict[str, str]:
    return {step.title: step.fingerprint for step in make_plan(load(spec, overrides)).steps}


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_shipped_spec_is_planned(
    path: Path, tiny_corpus: Path, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [f"workdir={tmp_path}/work", f"encoder.model={tiny_model}", "encoder.sha256=null"]
    overrides += ["cluster.embed.workers=1", "cluster.index.workers=1"]
    if load(path).corpus.type == "beir":
        overrides.append(f"corpus.path={tiny_corpus}")
    arguments = [part for override in overrides for part in ("--set", override)]
    before = ray.is_initialized()
    assert run.main([str(path), *arguments, "--plan"]) == 0
    shown = capsys.readouterr().out
    assert all(stage in shown for stage in STAGES)
    assert ray.is_initialized() == before
    assert not (tmp_path / "work").exists()


def test_check_looks_at_no_data(tiny_spec: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    spec = tiny_spec(corpus="{type: beir, path: nowhere}", encoder="{model: nowhere}", workdir="/proc/nowhere")
    assert run.main([str(spec), "--check"]) == 0
    assert capsys.readouterr().out == f"{spec}: ok\n"


@pytest.mark.parametrize(
    "override",
    ["name=other", "workdir=WORK", "cluster.embed.workers=1", "cluster.train.cpus=2", "encoder.batch_size=8"],
)
def test_what_is_no_part_of_a_fingerprint(override: str, tiny_spec: Callable[..., Path], tmp_path: Path) -> None:
    spec = tiny_spec()
    assert fingerprints(spec, override.replace("WORK", str(tmp_path / "elsewhere"))) == fingerprints(spec)


def test_a_copy_of_corpus_and_model_elsewhere_is_the_same(
    tiny_spec: Callable[..., Path], tiny_corpus: Path, tiny_model: Path, tmp_path: Path
) -> None:
    spec = tiny_spec()
    corpus = tiny_corpus.rename(tmp_path / "moved")
    model = tmp_path / "model"
    model.mkdir()
    for file in tiny_model.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    before = fingerprints(spec, f"corpus.path={corpus}")
    assert fingerprints(spec, f"corpus.path={corpus}", f"encoder.model={model}") == before


CHANGES = {
    "corpus.limits.text=50": STAGES,
    "encoder.max_length=16": STAGES[1:],
    "encoder.precision=bfloat16": STAGES[1:],
    "router.branching=4": STAGES[2:],
    "train.epochs=4": STAGES[2:],
    "train.loss.margin=0.2": STAGES[2:],
    "index.vectors=float16": STAGES[3:],
    "search.beam=3": STAGES[4:],
    "evaluate.lists=4": STAGES[4:],
}


@pytest.mark.parametrize("override", CHANGES)
def test_a_change_makes_its_stage_and_those_after_it_anew(override: str, tiny_spec: Callable[..., Path]) -> None:
    spec = tiny_spec()
    before, after = fingerprints(spec), fingerprints(spec, override)
    changed = {title.split()[0] for title in before if before[title] != after[title]}
    assert changed == set(CHANGES[override])


def test_a_changed_source_changes_everything(tiny_spec: Callable[..., Path], tiny_corpus: Path) -> None:
    spec = tiny_spec()
    before = fingerprints(spec)
    with (tiny_corpus / "queries.jsonl").open("a") as opened:
        opened.write('{"_id": "new", "text": "one more"}\n')
    assert not set(before.values()) & set(fingerprints(spec).values())


def test_a_seed_is_part_of_its_model_and_index_alone(tiny_spec: Callable[..., Path]) -> None:
    one, two = fingerprints(tiny_spec()), fingerprints(tiny_spec(), "evaluate.seeds=[1, 0]")
    assert {title: one[title] for title in one if title != "evaluate"}.items() <= two.items()
    assert two["train seed 0"] != two["train seed 1"]
    assert two["index seed 0"] != two["index seed 1"]
    assert one["evaluate"] != two["evaluate"]


def test_show_names_places_sizes_resources_and_state(tiny_spec: Callable[..., Path]) -> None:
    plan = make_plan(load(tiny_spec(cluster="{embed: {workers: 3, cpus: 2}}")))
    lines = show(plan).splitlines()
    assert "240 documents, 8 leaves" in lines[0]
    embed = next(line for line in lines if line.strip().startswith("embed"))
    assert f"vectors/{plan.step('vectors').fingerprint}" in embed
    assert "3 x 2 CPU" in embed
    assert "31 kB" in embed  # 240 x 32 x 4 bytes
    assert embed.endswith("to do")


def test_no_room_is_refused(tiny_spec: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(InputError, match="has 1 kB free; this plan writes about"):
        make_plan(load(tiny_spec()))


def test_scann_that_is_not_installed_is_refused(
    tiny_spec: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = load(tiny_spec(evaluate="{baselines: [exact, scann]}"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    make_plan(spec)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "scann" else object())
    with pytest.raises(InputError, match=r"evaluate\.baselines: got 'scann', .* pip install 'rayhier\[scann\]'"):
        make_plan(spec)

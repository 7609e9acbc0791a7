"""`train.generated`: what it holds, and what it does not go with."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rayhier import run
from rayhier.spec import InputError, load
from rayhier.spec.train import PairFile

FILE = "{type: file, path: pairs.jsonl}"


def read(tiny_spec: Callable[..., Path], generated: str) -> object:
    return load(tiny_spec(train=f"{{type: hce, generated: {generated}}}")).train.generation


def test_a_file_or_nothing(tiny_spec: Callable[..., Path]) -> None:
    assert read(tiny_spec, FILE) == PairFile(type="file", path="pairs.jsonl")
    assert read(tiny_spec, "null") is None
    assert load(tiny_spec(train="{}")).train.generation is None


REFUSED = {
    "without type": ("{path: pairs.jsonl}", "train.generated.type: missing"),
    "an unknown type": ("{type: files, path: p}", "train.generated.type: got 'files'; allowed: 'file'"),
    "without a path": ("{type: file}", "train.generated.path: missing"),
    "a file's unknown key": ("{type: file, path: p, most: 3}", "train.generated.most: got 3; allowed: type, path"),
    "pairs where documents teach": (
        f"{FILE}, objective: documents",
        "allowed: the default; others only where objective is not documents",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_the_key_in_one_line(name: str, tiny_spec: Callable[..., Path]) -> None:
    generated, said = REFUSED[name]
    with pytest.raises(InputError) as refused:
        read(tiny_spec, generated)
    (message,) = str(refused.value).splitlines()
    assert ": train.generated" in message
    assert said in message


@pytest.mark.parametrize("train", ["contrast", "ehi"])
def test_other_trainings_have_no_generated_pairs(train: str, tiny_spec: Callable[..., Path]) -> None:
    router = "{type: ehi, branching: 8}" if train == "ehi" else "{type: learned_ivf, branching: 8}"
    with pytest.raises(InputError, match=r"train\.generated: got \{.*\}; allowed: .*objective"):
        load(tiny_spec(train=f"{{type: {train}, generated: {FILE}}}", router=router))


def test_a_missing_file_is_refused_before_any_work(
    tiny_spec: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tiny_spec(train="{type: hce, generated: {type: file, path: nowhere.jsonl}}")
    assert run.main([str(spec), "--check"]) == 0
    assert run.main([str(spec)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: train.generated.path: got 'nowhere.jsonl', no such file; allowed: ")
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "work").exists()

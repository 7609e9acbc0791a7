"""`train.generated` is a file of pairs, or nothing."""

from rayhier import run
from rayhier.spec import load
from rayhier.spec.train import PairFile


def test_a_file_or_nothing(tiny_spec):
    for given, wanted in {"{type: file, path: p}": PairFile(type="file", path="p"), "null": None}.items():
        assert load(tiny_spec(train=f"{{type: hce, generated: {given}}}")).train.generation == wanted
    assert load(tiny_spec(train="{}")).train.generation is None


def test_a_missing_file_is_refused_before_any_work(tiny_spec, tmp_path, capsys):
    spec = tiny_spec(train="{type: hce, generated: {type: file, path: nowhere.jsonl}}")
    assert run.main([str(spec), "--check"]) == 0
    assert run.main([str(spec)]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: train.generated.path: got 'nowhere.jsonl', no such file; allowed: ")
    assert not (tmp_path / "work").exists()

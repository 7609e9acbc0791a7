"""A job publishes equal files in a folder by one process, and in a bucket by Ray."""

from pathlib import Path

import pytest

from rayhier import run
from rayhier.search.__main__ import main as search
from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import Location, locate

from .in_process import make

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(600), pytest.mark.slow]


def published(workdir: Location) -> dict[str, dict[str, str]]:
    """Kind -> name -> SHA-256, of files that are the same whenever they are made."""
    found = {}
    for kind in ("corpus", "vectors", "test", "model", "index", "calibration", "evaluate"):
        (folder,) = (workdir / kind).iterdir()
        artifact = Artifact.open(folder)
        artifact.verify()
        same = [
            file for file in artifact.record.files if file.name.endswith((".parquet", ".safetensors", ".trec", ".csv"))
        ]
        found[kind] = {file.name: file.sha256 for file in same}
    return found


def measured(work: Location) -> dict[str, dict[str, float]]:
    """Rows of a report without times."""
    systems = files.read_json(work / "report.json")["systems"]
    return {name: {key: value for key, value in row.items() if key != "ms"} for name, row in systems.items()}


def test_ray_makes_in_a_bucket_what_one_process_makes_in_a_folder(tiny_spec, s3, tmp_path, monkeypatch, capsys):
    """Equal to the last bit, in every stage."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    spec, there, folder = str(tiny_spec()), locate(s3), tmp_path / "work"
    make(Path(spec))
    capsys.readouterr()
    assert run.main([spec, "--set", f"workdir={there}"]) == 0
    assert "runs on Ray" in capsys.readouterr().err
    assert published(there) == published(folder)
    left = [name for name in files.below(there) if "/scratch/" in name or ".writable" in name]
    assert left == []
    assert measured(there) == measured(folder)
    capsys.readouterr()
    for workdir in (str(folder), s3):
        assert search([workdir, "leaf root branch"]) == 0
    found = capsys.readouterr().out
    assert found[: len(found) // 2] == found[len(found) // 2 :]
    assert run.main([spec, "--set", f"workdir={s3}"]) == 0
    assert '"state": "built"' not in capsys.readouterr().out

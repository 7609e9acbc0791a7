"""A workdir that rayhier 0.2.0 made is refused by name: its spec has keys that this version lacks."""

import shutil
from pathlib import Path

import pytest

import rayhier
from rayhier.spec import InputError

ASSET = Path(__file__).parents[1] / "assets" / "workdir-0.2.0"


def test_a_workdir_of_0_2_0_is_refused_by_name(tmp_path: Path) -> None:
    work = shutil.copytree(ASSET / "work", tmp_path / "work")
    with pytest.raises(InputError, match=r"current\.json: format 3, not 4: was written by another version of rayhier"):
        rayhier.open(work)

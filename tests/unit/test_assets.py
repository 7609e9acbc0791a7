"""A workdir that rayhier 0.2.0 made is refused by name."""

from pathlib import Path

import pytest

import rayhier
from rayhier.spec import InputError

ASSET = Path(__file__).parents[1] / "assets" / "workdir-0.2.0"


def test_a_workdir_of_0_2_0_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"workdir-0\.2\.0/work/current\.json: format 3, not 4: .* another version"):
        rayhier.open(ASSET / "work")

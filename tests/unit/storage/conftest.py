"""Storage on this machine and in a bucket: the same tests, the same results."""

from pathlib import Path

import pytest

from rayhier.storage.paths import Location, locate


@pytest.fixture(params=["local", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty place of the test's own."""
    return locate(request.getfixturevalue("s3")) if request.param == "s3" else tmp_path

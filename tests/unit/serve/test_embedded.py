"""An embedded server: the whole application in one process, without Ray."""

import subprocess
import sys
from unittest.mock import AsyncMock

import pytest

from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.shards import ShardGroup
from rayhier.serve.embedded import Embedded
from rayhier.serve.errors import LostError


async def test_shards_that_fail_are_lost_until_they_answer(published, monkeypatch):
    opened = Embedded(ServeArgs(workdir=str(published)))
    (shards,) = opened._shards
    with monkeypatch.context() as patch:
        for name in ("read", "ping"):
            patch.setattr(ShardGroup, name, AsyncMock(side_effect=OSError("gone")))
        with pytest.raises(LostError, match="shards-0"):
            await shards.read(None, None)
        assert not await shards.answers()
    assert await shards.answers()
    opened.close()


def test_it_imports_no_ray():
    said = "import sys, rayhier.serve.embedded; sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", said], check=True)

"""Actors that hold parts of an evaluation."""

from pathlib import Path

import pyarrow as pa
import pytest

from rayhier.evaluate.part import Part
from rayhier.evaluate.ray import Actors
from rayhier.spec import InputError
from rayhier.spec.cluster import Workers

pytestmark = pytest.mark.usefixtures("cluster")


def test_actors_hold_several_parts_and_let_them_go(tmp_path: Path) -> None:
    ids = [pa.array(["a", "b"]), pa.array(["c"])]
    vectors = pa.array([[1.0], [2.0]])
    with Actors(Workers(workers=2)) as actors:
        first = actors.start(Part, [(own, own, vectors) for own in ids])
        second = actors.start(Part, [(ids[1], ids[1], vectors)])
        alone = actors.alone(Part, ids[0], ids[0], vectors)
        assert (first.call(Part.count), second.call(Part.count), alone.call(Part.count)) == ([2, 1], [1], [2])
        first.close()
        assert second.call(Part.count) == [1]
        with pytest.raises(KeyError):
            first.call(Part.count)
        alone.close()
        # What a user can mend reads as it would have in this process.
        with pytest.raises(InputError) as refused:
            actors.start(Part.of_shards, [(str(tmp_path / "none"), [0])])
        assert str(refused.value) == f"{tmp_path / 'none'}: no artifact is published there"

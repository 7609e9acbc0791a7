"""A published corpus of a few documents in two parts."""

import hashlib

import pyarrow as pa
import pytest

from rayhier.storage import files, schemas
from rayhier.storage.artifact import Artifact, Place
from rayhier.storage.attempt import Attempt, Output

PARTS = ["documents/part-00000.parquet", "documents/part-00001.parquet"]
TEXTS = ["pine oak", "river stone bird fish moss", "wolf", "cloud rain cloud", "leaf", "bear deer hare ash elm fern"]


def by_hand(name, seed):
    """Hash of seed and id: the first eight bytes of BLAKE2b."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\0{name}".encode()).digest()[:8], "big")


@pytest.fixture
def make_corpus(tmp_path):
    """`make_corpus(parents=None)`: the corpus of six documents, or of passages of these parents, as an artifact."""

    def make(parents=None):
        with Attempt.start(Place(tmp_path / "corpus" / "made")) as attempt:
            for number, name in enumerate(PARTS):
                own = range(number * 3, number * 3 + 3)
                columns = [[f"d{row}" for row in own], [""] * 3, [TEXTS[row] for row in own]]
                schema = schemas.documents({}, passages=parents is not None)
                columns += [] if parents is None else [[parents[row] for row in own]]
                files.write_parquet(attempt.root, name, [pa.table(columns, schema=schema)], schema)
            attempt.publish("corpus", {}, Output({"rows": 6}))
        return Artifact.open(tmp_path / "corpus" / "made")

    return make

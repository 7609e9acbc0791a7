"""What every test shares: one Ray cluster a session, and the collections."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A local Ray cluster of eight logical CPUs, whatever the machine has."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    ray.init(
        address="local",
        num_cpus=8,
        object_store_memory=200_000_000,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """`data("scifact")`: the folder of a collection. A test that needs one fails where there is none."""

    def find(name: str) -> Path:
        given = os.environ.get("RAYHIER_DATA")
        places = [*([Path(given)] if given else []), ROOT / "data", ROOT.parent / "shared" / "data"]
        for place in places:
            if (place / name / "corpus.jsonl").is_file():
                return place / name
        tried = ", ".join(str(place) for place in places)
        return pytest.fail(f"collection {name!r} is in none of {tried}: set RAYHIER_DATA to the folder that holds it")

    return find

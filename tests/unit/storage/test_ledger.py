"""A finished output counts only while its files are whole."""

import pytest

from rayhier.storage import files
from rayhier.storage.ledger import Ledger, LedgerEntry


@pytest.fixture
def ledger(folder):
    return Ledger(folder / "scratch" / "ledger", folder)


@pytest.fixture
def entry(folder, ledger):
    (folder / "a.bin").write_bytes(b"aaaa")
    return ledger.enter("shard-0", LedgerEntry((files.describe(folder, "a.bin"),), {"rows": 4}))


def test_resumes_what_is_whole(ledger, entry):
    assert ledger.done("shard-0") == entry
    assert ledger.done("shard-1") is None


def test_makes_again_what_is_not(folder, ledger, entry):
    for damage in (lambda path: path.write_bytes(b"aa"), lambda path: path.unlink()):
        damage(folder / entry.files[0].name)
        assert ledger.done("shard-0") is None


@pytest.mark.parametrize("bytes_", [b"", b"{", b"[]", b'{"files": [{}], "counts": {}}', b'{"files": []}', b"\xff"])
def test_a_damaged_entry_is_none(folder, ledger, entry, bytes_):
    files.replace(folder / "scratch" / "ledger" / "shard-0.json", bytes_)
    assert ledger.done("shard-0") is None


def test_the_first_settles_what_all_use(folder, ledger):
    """Also where the second looked before the first was done."""
    assert ledger.agree("arithmetic", lambda: ledger.agree("arithmetic", lambda: "first") and "second") == "first"
    assert Ledger(ledger.folder, folder).agree("arithmetic", pytest.fail) == "first"

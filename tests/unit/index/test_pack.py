"""Packing: few files stay, and nothing that a reader sees changes, whatever lands meanwhile."""

from rayhier.index import change, pack
from rayhier.index.vacuum import vacuum
from rayhier.index.verify import verify
from rayhier.storage.change_log import Change, ChangeLog
from rayhier.storage.leaf_map import LeafMap

from .changes import FACTOR, batch, content


def test_files_of_many_folds_are_few(made, monkeypatch):
    monkeypatch.setattr(pack, "WIDTH", 4)
    log = ChangeLog(made.root)
    for number in range(1, 19):
        table = made.assign(*batch([f"n{number}", "d001"], number)[0])
        assert log.append(Change(number, "put", table, documents=2))
        change.fold(made.root, made.assign, FACTOR)
        log.gather(number, number)
        while pack.pack(made.root) is not None:
            pass
        if number == 7:
            early = LeafMap.open(made.root)
            held = content(early)
    before = content(LeafMap.open(made.root))
    assert {"d001", *(f"n{number}" for number in range(1, 19))} <= {name for name, _ in before}
    assert content(LeafMap.open(made.root, early.manifest.version)) == held
    vacuum(made.root, 1, 0)
    newest = LeafMap.open(made.root)
    assert len(list((made.root / "data").glob("*.parquet"))) == len(newest.manifest.shards) < 12
    assert len(list((made.root / "removed").glob("*.parquet"))) == len(newest.manifest.removed) < 12
    assert content(newest) == before
    verify(made.root)


def test_a_vacuum_leaves_the_log_that_versions_need(made, monkeypatch):
    monkeypatch.setattr("rayhier.index.vacuum.KEPT", 4)
    log, table = ChangeLog(made.root), made.assign(*batch(["n1"])[0])
    for first, last in ((1, 4), (5, 6), (7, 7)):
        for number in range(first, last + 1):
            log.append(Change(number, "put", table, documents=1))
        change.fold(made.root, None)
        log.tidy(last)
    vacuum(made.root, 2)
    assert [each.number for each in log.after(0)] == [1, 2, 3, 4, 5, 6, 7]  # the older version's files end at 6
    vacuum(made.root, 1)
    assert [each.number for each in log.after(3)] == [4, 5, 6, 7]
    assert len(list((made.root / "log").glob("*.changes"))) == 2

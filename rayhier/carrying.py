"""What a run carries from the index that is served into the index that it publishes: changes of documents."""

from rayhier.plan import Plan
from rayhier.progress import say
from rayhier.spec import InputError, JobSpec
from rayhier.storage import current, writer_lease
from rayhier.storage.artifact import Artifact, Place
from rayhier.storage.change_log import ChangeLog
from rayhier.storage.leaf_map import LeafMap


def carry_changes(plan: Plan, spec: JobSpec, artifacts: dict[str, str]) -> str | None:
    """Carry changes of the index that current.json names into this run's; returns that index's fingerprint.

    Where current.json names this run's index already, the one before it, carried again where it was written to since;
    None where there was none. Where nobody wrote to the index that it names, but a server to the one before that, this
    goes on, and is carried and returned too.
    """
    try:
        named = current.read(plan.workdir)
    except InputError:  # missing, damaged, or of an older version: there is nothing to carry
        return None
    before, index = (Place(plan.workdir / "index" / kind["index"]) for kind in (named.artifacts, artifacts))
    first = None if named.before is None else Place(plan.workdir / "index" / named.before).published()
    old, new = first if before == index else before.published(), index.published()
    if before == index and (old is None or new is None or not _goes_on(old, new)):
        return named.before
    if old is None or new is None:
        return None
    from rayhier.index import carry_changes as index_changes
    from rayhier.search.model import Model

    model = Model.of_workdir(plan.workdir, current.Current(spec=spec, artifacts=artifacts))
    is_written = first is not None and writer_lease.newest(first.root) and not writer_lease.newest(old.root)
    earlier = [old, first] if first is not None and is_written and first.root not in (old.root, new.root) else [old]
    for artifact in earlier:
        if artifact is first and not _goes_on(artifact, new):
            continue
        carried = index_changes.carry_changes(artifact, new, model)
        if carried is not None:
            told = f"{carried.written:,} documents written, {carried.removed:,} removed"
            say(f"carried the changes of index {artifact.record.fingerprint}: {told}")
    return earlier[-1].record.fingerprint


def _goes_on(before: Artifact, index: Artifact) -> bool:
    """Return True where an index was written to after the changes that another has of it."""
    taken = ChangeLog(index.root).last(LeafMap.open(index.root).manifest.log)
    return max(ChangeLog(before.root).last(), LeafMap.open(before.root).manifest.log) > taken

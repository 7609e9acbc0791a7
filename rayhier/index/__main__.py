"""`rayhier index COMMAND WORKDIR …`: change, check and export a built index."""

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rayhier.command import Parser, run_command
from rayhier.index.arguments import ids, of_documents, positive
from rayhier.progress import say
from rayhier.spec import InputError, JobSpec
from rayhier.storage.paths import Location, locate

if TYPE_CHECKING:
    from rayhier.storage.current import Current
    from rayhier.storage.leaf_map import LeafMap, Manifest


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns exit code 2 after a user's mistake or an unreadable file, else 0."""
    options = _parser().parse_args(arguments)
    return run_command(lambda: _print(_run(options)), unfinished=". No version was published")


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _parser() -> Parser:
    parser = Parser(
        prog="rayhier index",
        description="Change, check and export a built index.",
        epilog="add, delete, get and list take the address of a server, http://…, in place of WORKDIR.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, says: str) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, help=says, description=says, allow_abbrev=False)
        where = "folder, s3:// or gs:// prefix of a run that built an index. Some commands take a server's http://…"
        parser.add_argument("workdir", help=where)
        return parser

    adding = of_documents(command)
    adding.add_argument("--id", metavar="NAME", help="column with the ids (default: the corpus's)")
    command("fold", "write changes that a server left in the change log to leaf files")
    command("maintain", "split leaves that grew and remove leaves that shrank, without training")
    command("compact", "rewrite many files as few, without deleted rows")
    sweeping = command("vacuum", "remove old versions that nobody uses, and the files that only they need")
    sweeping.add_argument("--keep", type=positive, default=1, help="number of newest versions to keep (default 1)")
    sweeping.add_argument(
        "--hours", type=_hours, default=24.0, help="hours after which files of no version are removed (default 24)"
    )
    command("stats", "show sizes, balance and drift, and what you should do")
    checking = command("verify", "check every file of every version, and every row of one version")
    checking.add_argument("--version", type=positive, help="version whose rows are checked (default: the newest)")
    exporting = command("export", "write one faiss file that plain faiss opens")
    exporting.add_argument("file", type=_local, help="file to write. FILE.rows.parquet gets the document of each row")
    command("versions", "list versions")
    rolling = command("rollback", "publish an older version again as the newest")
    rolling.add_argument("version", type=positive, help="number of the older version")
    return parser


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 <= hours < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: 0 or more")
    return hours


def _local(text: str) -> Path:
    if not text or "://" in text or not Path(text).name or Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: path of a file on this machine")
    return Path(text)


def _run(options: argparse.Namespace) -> list[str]:
    from rayhier.index import change
    from rayhier.index.compact import compact_here
    from rayhier.index.pack import packed
    from rayhier.index.verify import verify
    from rayhier.search.index import index_root, open_leaf_map, reading_leaf_map
    from rayhier.storage import current

    if getattr(options, "token_file", None) is not None:
        raise InputError(f"--token-file: got workdir {options.workdir}; allowed: the address of a server, http://…")
    workdir = locate(options.workdir)
    now = current.read(workdir)
    if options.command in REPAIRS:
        return REPAIRS[options.command](index_root(workdir, now), options)
    opened = open_leaf_map(workdir, now)
    match options.command:
        case "add":
            return _add(options, workdir, opened)
        case "delete":
            return _changed(opened.manifest, packed(change.delete(opened.root, ids(options))).manifest)
        case "fold":
            return _fold(now, opened, workdir)
        case "maintain":
            return _maintain(now, opened, workdir)
        case "compact":
            leaves = [shard.leaves for shard in opened.manifest.shards if shard.rows]
            if not opened.manifest.removed and all(before[-1] < after[0] for before, after in pairwise(leaves)):
                return [f"version {opened.manifest.version}: nothing to compact, as no row is removed or unsorted"]
            return _changed(opened.manifest, compact_here(now.spec, opened.root).manifest)
        case "get" | "list":
            with reading_leaf_map(workdir, now, opened.manifest.version) as pinned:
                return _stored(options, pinned)
        case "stats":
            return _stats(opened, now.spec)
        case "verify":
            began = time.monotonic()
            read = verify(opened.root, options.version)
            return [f"whole: versions {', '.join(map(str, read))} ({time.monotonic() - began:.1f} s)"]
        case _:
            from rayhier.index.export import ROWS, export
            from rayhier.search.request.request import rules_of
            from rayhier.search.routing.chosen_beam import calibration_of

            manifest = opened.manifest
            probes = rules_of(now.spec, manifest, calibration_of(workdir, now)).beam_for(now.spec.search.k)
            with reading_leaf_map(workdir, now, manifest.version) as pinned:
                exported = export(pinned, options.file, probes)
            recall = exported.recall
            return [
                f"{options.file}: {exported.rows:,} rows in {exported.lists:,} lists, {exported.bytes / 1e6:,.1f} MB",
                f"{options.file}{ROWS}: the document of each row",
                f"with nprobe = {probes}, the spec's beam, plain faiss finds {recall:.1%} of what a scan finds",
            ]


def _add(options: argparse.Namespace, workdir: Location, opened: "LeafMap") -> list[str]:
    say(f"loading index and encoder from {options.workdir}")
    from rayhier.index.add_file import add_file

    changed = add_file(workdir, options.file, upsert=options.upsert, id_column=options.id)
    return _changed(opened.manifest, changed.manifest)


def _fold(now: "Current", opened: "LeafMap", workdir: Location) -> list[str]:
    folded = _folded(now, opened, workdir)
    if folded is None:
        return [f"version {opened.manifest.version}: the change log has no tail"]
    return _changed(opened.manifest, folded.manifest)


def _folded(now: "Current", opened: "LeafMap", workdir: Location) -> "LeafMap | None":
    from rayhier.index import change
    from rayhier.index.assign import Assigner
    from rayhier.search.routing.routes import Model
    from rayhier.storage.change_log import ChangeLog
    from rayhier.storage.writer_lease import refuse_while_written

    refuse_while_written(opened.root)
    model = Model.of_workdir(workdir, now, opened)
    assign = Assigner(model.router, now.spec, opened.manifest.model)
    folded = change.fold(opened.root, assign)
    if folded is not None:
        ChangeLog(opened.root).tidy(folded.manifest.log)
    return folded


def _maintain(now: "Current", opened: "LeafMap", workdir: Location) -> list[str]:
    from rayhier.index.maintain import maintain
    from rayhier.search.routing.routes import Model

    folded = _folded(now, opened, workdir)
    newest, lines = folded or opened, [] if folded is None else _changed(opened.manifest, folded.manifest)
    while maintained := maintain(newest.root, Model.of_workdir(workdir, now, newest).router, now.spec):
        lines += _changed(newest.manifest, maintained.manifest)
        newest = maintained
    return lines or [f"version {newest.manifest.version}: no leaf needs to be split or removed"]


def _stored(options: argparse.Namespace, opened: "LeafMap") -> list[str]:
    import pyarrow as pa

    from rayhier.search.segment.stored import Listing, Lookup, documents, read_shards
    from rayhier.search.segment.tail import Tail
    from rayhier.search.snapshot import stored_and_tail, together
    from rayhier.storage.change_log import ChangeLog

    tail = Tail(opened.manifest.log, words=None)
    for change in ChangeLog(opened.root).after(opened.manifest.log):
        tail.add(change)
    view, leaves = tail.at(tail.last), range(len(opened.manifest.counts))

    def read(work: Lookup | Listing) -> list[pa.Table]:
        if view.is_empty:
            return read_shards(opened, work)
        return [stored_and_tail(lambda piece: together(read_shards(opened, piece)), work, view, leaves)]

    if options.command == "get":
        lookup = Lookup(tuple(ids(options)))
        shown = documents(read(lookup), lookup)
        if missing := sorted(set(lookup.ids) - {document.id for document in shown}):
            raise InputError(f"id: got {missing[0]!r:.80}; allowed: the id of a document in the index")
    else:
        page = Listing(options.after, options.limit + 1)
        shown = documents(read(page), page)
        if len(shown) > options.limit:
            shown = shown[: options.limit]
            say(f"{options.limit:,} documents. There are more: give --limit, or --after {shown[-1].id}")
    return [json.dumps(dataclasses.asdict(document), ensure_ascii=False, default=str) for document in shown]


def _changed(before: "Manifest | None", after: "Manifest") -> list[str]:
    title = f"version {after.version} ({after.change})"
    since = "" if before is None or after.version == before.version + 1 else f" since version {before.version}"
    grown = "" if before is None else f" ({after.documents - before.documents:+,}{since})"
    return [f"{title}: {after.documents:,} documents{grown}, {after.rows:,} rows, {len(after.files):,} files"]


def _stats(opened: "LeafMap", spec: JobSpec) -> list[str]:
    from rayhier.index.stats import Stats

    stats = Stats.of(opened.manifest, spec)
    shown = {
        **{name: value for name, value in dataclasses.asdict(stats).items() if isinstance(value, int)},
        "documents": opened.size.replace(" documents", ""),
        "imbalance": f"{stats.imbalance:.3f}",
        "removed rows": f"{stats.void:.1%}",
        "added rows": f"{stats.added:.1%}",
        "mean log-probability": f"{stats.log_prob:.3f}",
        "added log-probability": "none" if stats.added_log_prob is None else f"{stats.added_log_prob:.3f}",
    }
    if stats.due is not None:
        shown["rows compared"] = f"{stats.due.dear:.2f} times those of a rebuilt index"
    lines = [
        f"{name.replace('_', ' '):22} {value:,}" if isinstance(value, int) else f"{name:22} {value}"
        for name, value in shown.items()
    ]
    return [*lines, *(stats.advice() or ["nothing needs to be done"])]


def _vacuum(root: Location, options: argparse.Namespace) -> list[str]:
    from rayhier.index.vacuum import vacuum

    swept = vacuum(root, options.keep, options.hours)
    removed, in_use = (", ".join(map(str, versions)) for versions in (swept.versions, swept.held))
    lines = [f"removed versions: {removed or 'none'}. Removed {swept.files:,} files, {swept.bytes / 1e6:,.1f} MB"]
    return [*lines, f"versions in use, or used by a process killed within five minutes: {in_use}"] if in_use else lines


def _rollback(root: Location, options: argparse.Namespace) -> list[str]:
    from rayhier.index import change
    from rayhier.storage.leaf_map import LeafMap

    try:
        before = LeafMap.open(root).manifest
    except InputError:  # a rollback may repair it
        before = None
    return _changed(before, change.rollback(root, options.version).manifest)


def _versions(root: Location, _: argparse.Namespace) -> list[str]:
    from rayhier.storage import leaf_map, pins
    from rayhier.storage.leaf_map import LeafMap

    pinned = pins.held(root)
    lines = []
    for version in leaf_map.versions(root):
        try:
            manifest = LeafMap.open(root, version).manifest
        except InputError as error:
            lines.append(f"{version:>7}  {error}")
            continue
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.at))
        lines.append(
            f"{version:>7}  {at}  {manifest.change:9} {manifest.documents:>12,} documents"
            f"{'  pinned' if version in pinned else ''}"
        )
    return lines


REPAIRS = {"vacuum": _vacuum, "versions": _versions, "rollback": _rollback}
"""Name -> function of the commands that run even if the newest manifest is damaged."""


if __name__ == "__main__":
    sys.exit(main())

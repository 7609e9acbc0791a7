"""`rayhier upgrade WORKDIR`: bring the workdir of an older release to today's format, without training again.

Vectors, models, indexes and change logs of 0.2.0 are still read, so an upgrade does not touch these files. An upgrade
checks everything, copies current.json, and then replaces it in one step with a spec that has only today's keys. If
today's rule for words is new, the index's words are counted again at last. Until then, searches take longer to open.
"""

import copy
import json
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from rayhier.command import Parser, run_command
from rayhier.dataset.documents import document_texts
from rayhier.dataset.words import postings
from rayhier.spec import InputError, JobSpec
from rayhier.storage import current, files, parquet, pins, schemas
from rayhier.storage.artifact import Artifact, Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.change_log import LOG, ChangeLog
from rayhier.storage.current import FORMAT, NAME, RELEASES, Current
from rayhier.storage.files import File
from rayhier.storage.leaf_map import LeafMap, Manifest, commit, now
from rayhier.storage.liveness import started
from rayhier.storage.paths import Location, locate
from rayhier.storage.shard import Shard
from rayhier.storage.writer_lease import SECONDS

Tree = dict[str, Any]
NEEDED: Tree = {
    "corpus.fields": {},
    "corpus.passages": None,
    "router.first_pass": "auto",
    "router.height": 1,
    "search.finish": "vectors",
    "search.hybrid.depth": 100,
    "search.rerank.first": "search",
    "search.rerank.mu": 1.0,
    "search.widest": "all",
}
"""Removed keys of 0.2.0 that decide what a search finds -> the only value that today's searches have."""
FEWEST_BY_CODES, MOST_BY_CODES = 1_000, 200_000
"""Fewest and most documents of an index for which `search.how: auto` of 0.2.0 compared codes of all documents."""
WRITERS = "writers"
"""Folder in the change log for leases of 0.2.0's Writers."""
STOP = "an index without a writer. Nothing was changed. Stop the writer and run rayhier upgrade again"
DOT = "encoder.similarity: dot: BM25's weight has another unit now. If it is auto, rayhier run SPEC chooses it again"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns exit code 2 after a user's mistake or an unreadable file, else 0."""
    given = _parser().parse_args(arguments)
    mend = ". Nothing is lost. Remove the cause and run rayhier upgrade again"
    return run_command(lambda: print("\n".join(upgrade(locate(given.workdir)))), unfinished=mend)


def _parser() -> Parser:
    parser = Parser(
        prog="rayhier upgrade",
        description="Bring the workdir of rayhier 0.2.0 to today's format. Nothing is encoded or trained again.",
        epilog="Stop servers and commands that write to the index first. The old current.json is kept as a copy.",
        allow_abbrev=False,
    )
    parser.add_argument("workdir", help="folder, s3:// or gs:// prefix of a run of rayhier 0.2.0 that built an index")
    return parser


def upgrade(workdir: Location) -> list[str]:
    """Upgrade a workdir in place. Returns lines that say what was done. InputError if that is impossible."""
    saved = _read(workdir)
    if saved["format"] == FORMAT:
        counted = dict.fromkeys(filter(None, [_count_words(index.root) for index in _indexes(workdir, saved)]))
        return [f"{workdir}: has format {FORMAT} already. {'. '.join(counted) or 'Nothing was changed'}"]
    release = RELEASES[saved["format"]]
    indexes = _indexes(workdir, saved)
    leases = {index.root: _ended_lease(index.root) for index in [*indexes, *_replaced(workdir, saved)]}
    newest = LeafMap.open(indexes[0].root).manifest
    upgraded, told = STEPS[saved["format"]](saved, newest)
    for root, number in leases.items():
        _fence(root, number)
    upgraded = _calibrated(workdir, upgraded)
    current.keep(workdir, release)
    current.write(workdir, upgraded)
    told += filter(None, [_count_words(index.root) for index in indexes])
    tail = ChangeLog(indexes[0].root).last(newest.log) - newest.log
    size = f"{newest.documents:,} documents, {tail:,} changes in the log"
    first = f"{workdir}: upgraded from rayhier {release}: {size}. Nothing was encoded or trained again"
    return [first, *dict.fromkeys(told)]


def _read(workdir: Location) -> Tree:
    """Read current.json of a format that can be upgraded, or of today's format. InputError for other formats."""
    path = workdir / NAME
    allowed = f"a workdir of rayhier {' or '.join(RELEASES.values())}, or newer"
    try:
        saved = files.read_json(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; allowed: {allowed}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON: {error}; allowed: {allowed}") from None
    found = saved.get("format") if isinstance(saved, dict) else None
    if found not in (FORMAT, *RELEASES):
        raise InputError(f"{path}: got format {found!r}; allowed: {allowed}. Or run the spec in another workdir")
    if not all(isinstance(saved.get(key), dict) for key in ("spec", "artifacts", "seeds")):
        raise InputError(f"{path}: damaged: spec, artifacts or seeds are missing; allowed: {allowed}")
    return dict(saved)


def _indexes(workdir: Location, saved: Tree) -> list[Artifact]:
    """Open all artifacts of current.json. Returns the indexes, the searched one first. InputError for damage."""
    named = [pair for artifacts in (saved["artifacts"], *saved["seeds"].values()) for pair in artifacts.items()]
    opened = [Artifact.open(workdir / kind / fingerprint) for kind, fingerprint in named]
    indexes = [artifact for artifact in opened if artifact.record.kind == "index"]
    for index in indexes:
        LeafMap.open(index.root)
    if not indexes:
        raise InputError(f"{workdir / NAME}: names no index. Run the spec in another workdir")
    return indexes


def _replaced(workdir: Location, saved: Tree) -> list[Artifact]:
    """Open the index that current.json named before, if it exists. A server may still write to this index."""
    index = Place(workdir / "index" / saved["before"]).published() if saved.get("before") else None
    return [] if index is None else [index]


def _calibrated(workdir: Location, upgraded: Current) -> Current:
    """Name a calibration without a beam if 0.2.0 made none, because searches with `beam: auto` need one."""
    if not upgraded.spec.chooses_beam or "calibration" in upgraded.artifacts:
        return upgraded
    index = upgraded.artifacts["index"]
    place = Place(workdir / "calibration" / index)
    if place.published() is None:
        with Attempt.start(place) as attempt:
            attempt.publish("calibration", {"index": index}, Output({}))
    return upgraded.model_copy(update={"artifacts": {**upgraded.artifacts, "calibration": index}})


# The spec


def _from_0_2_0(saved: Tree, newest: Manifest) -> tuple[Current, list[str]]:
    """Make today's current.json from that of 0.2.0. Also returns messages about changes of the spec."""
    spec, told = copy.deepcopy(saved["spec"]), list[str]()
    _move(spec, told)
    _choose_beam(spec["search"], newest, told)
    read, dropped = _without_removed(spec)
    if dropped:
        told.append(f"dropped from the spec: {', '.join(sorted(dropped))}")
    if read.encoder.similarity == "dot" and read.index.words and read.search.hybrid.fuse == "sum":
        told.append(DOT)
    return Current(**{**saved, "format": FORMAT, "spec": read}), told


STEPS: dict[int, Callable[[Tree, Manifest], tuple[Current, list[str]]]] = {3: _from_0_2_0}
"""Format -> function that makes today's current.json. If today's format changes, add a step and mend these steps."""


def _move(spec: Tree, told: list[str]) -> None:
    """Rename the keys of 0.2.0 that have another name today."""
    corpus, evaluate, moved = spec["corpus"], spec["evaluate"], list[str]()
    if track := spec.pop("run", {}).get("track"):
        spec["track"] = track
        moved.append("run.track to track")
    if (most := spec["train"].pop("micro_batch", None)) is not None:
        spec["cluster"]["train"]["micro_batch"] = most
        moved.append("train.micro_batch to cluster.train.micro_batch")
    if factors := spec.pop("factors", None):
        spec["scores"]["factors"] = "bias" if factors["vectors"] == "none" else factors["vectors"]
        moved.append("factors to scores.factors")
    for key, revision in (("judgements", "judgements_revision"), ("path", "revision")):
        if corpus.get(revision):
            named = corpus[key] or f"{corpus['path'].rstrip('/')}-qrels"
            corpus[key] = f"{named}@{corpus.pop(revision)}"
            moved.append(f"corpus.{revision} into corpus.{key}")
    if generated := spec["train"].get("generated"):
        spec["train"]["generated"] = generated["path"] if generated["type"] == "file" else None
        if generated["type"] == "file":
            moved.append("train.generated.path into train.generated")
        else:
            told.append("dropped from the spec: train.generated of type model")
    if moved:
        told.append(f"moved in the spec: {', '.join(moved)}")
    if "codes" in evaluate["baselines"]:
        evaluate["baselines"].remove("codes")
        told.append("dropped from the spec: codes of evaluate.baselines")


def _choose_beam(search: Tree, newest: Manifest, told: list[str]) -> None:
    """Let searches visit all leaves if 0.2.0 compared codes of all documents. InputError if each query had a beam."""
    how, beam = search["how"], search["beam"]
    if isinstance(beam, dict):
        raise InputError(
            f"search.beam: got type {beam['type']}, a beam for each query, which was removed; allowed: a number, or "
            f"auto. {_again('search.beam')}"
        )
    is_plain = beam == "auto" and search["widest"] == "all" and search["rerank"]["type"] == "none"
    if how == "codes" or (how == "auto" and is_plain and FEWEST_BY_CODES <= newest.documents <= MOST_BY_CODES):
        search["beam"] = len(newest.counts)
        told.append(f"search.how: {how} compared all documents. Now it is a beam of all {search['beam']:,} leaves")
    search["how"] = "level" if how == "level" else "leaves"


def _without_removed(spec: Tree) -> tuple[JobSpec, list[str]]:
    """Read a spec without the removed keys. Also returns these keys. InputError if searches need a removed key."""
    dropped: list[str] = []
    while True:
        try:
            return JobSpec.model_validate(spec), dropped
        except ValidationError as error:
            problems = error.errors(include_url=False)
            unknown = [problem["loc"] for problem in problems if problem["type"] == "extra_forbidden"]
            if not unknown:
                key = ".".join(map(str, problems[0]["loc"]))
                raise InputError(f"{NAME}: spec.{key}: {problems[0]['msg']}. {_again('the key')}") from None
            dropped += [_drop(spec, location) for location in unknown]


def _drop(spec: Tree, location: Sequence[str | int]) -> str:
    """Remove the key at pydantic's `location` from a spec. Returns KEY=VALUE, or KEY for a section."""
    section, path = spec, list[str]()
    for part in map(str, location[:-1]):
        if part in section:
            path, section = [*path, part], section[part]
    key = ".".join([*path, str(location[-1])])
    value = section.pop(str(location[-1]))
    if key in NEEDED and value != NEEDED[key]:
        got, allowed = json.dumps(value), json.dumps(NEEDED[key])
        raise InputError(f"{key}: got {got}, but this key was removed; allowed: {allowed}. {_again(key)}")
    return key if isinstance(value, dict) else f"{key}={json.dumps(value)}"


def _again(key: str) -> str:
    return f"Nothing was changed. Change {key} in the spec and run it with rayhier 0.2.0 first"


# Writers


def _ended_lease(root: Location) -> int:
    """Return the number of the newest lease of 0.2.0 on an index, or 0. InputError if the lease still holds."""
    if pins.written(root):
        raise InputError(f"{root}: a command writes to this index, or was killed within five minutes; allowed: {STOP}")
    names = (name.removesuffix(".json") for name in files.names(root / LOG / WRITERS))
    number = max((int(name) for name in names if name.isdecimal()), default=0)
    if not number:
        return 0
    path = _lease(root, number)
    try:
        saved = files.read_json(path)
        host, pid, until = str(saved["host"]), int(saved["pid"]), float(saved["until"])
    except (OSError, ValueError, KeyError, TypeError):
        host, pid, until = "an unknown machine", 0, path.stat().st_mtime + SECONDS
    if until > now() and (host != socket.gethostname() or started(pid) is not None):
        raise InputError(f"{root}: a server writes to this index (process {pid} of {host}); allowed: {STOP}")
    return number


def _fence(root: Location, number: int) -> None:
    """Take the lease after `number`, so that a suspended Writer of 0.2.0 stops when it resumes."""
    ended = files.to_json({"until": 0.0, "host": socket.gethostname(), "pid": 0})
    if number and not files.create(_lease(root, number + 1), ended):
        raise InputError(f"{root}: a server took the lease at this moment; allowed: {STOP}")


def _lease(root: Location, number: int) -> Location:
    return root / LOG / WRITERS / f"{number:06d}.json"


# Words


def _count_words(root: Location) -> str:
    """Publish a version whose words are split by today's rule. Returns what was done, "" if there was nothing to do."""
    newest = LeafMap.open(root)
    shards, rule = newest.manifest.shards, schemas.rule(newest.manifest.language)
    old = [shard for shard in shards if shard.postings and _rule(root, shard.postings) != rule]
    if not old:
        return ""
    counted: dict[str, File] = {}
    with pins.pinned(root, newest.manifest.version, writes=True):
        for shard in old:
            table = _counted(newest, shard)
            stem = shard.file.name.rpartition("/")[2].removesuffix(".parquet")
            name = f"words/{stem}-{rule.replace(' ', '-')}.parquet"
            counted[shard.file.name] = parquet.write(root, name, [table], table.schema)

        def change(latest: LeafMap) -> Manifest:
            shards = [
                shard.model_copy(update={"postings": counted.get(shard.file.name, shard.postings)})
                for shard in latest.manifest.shards
            ]
            return latest.manifest.changed("upgrade", shards=shards)

        version = commit(root, change).manifest.version
    return f"words counted again in version {version} of the index"


def _counted(leaf_map: LeafMap, shard: Shard) -> pa.Table:
    """Count the words of a shard's documents, including removed documents."""
    whole = LeafMap(leaf_map.root, leaf_map.manifest.model_copy(update={"removed": []}))
    rows = whole.read(shard, ["rank", "title", "text"])
    is_first_N = rows["rank"].to_numpy() == 0
    texts = document_texts(rows.filter(pa.array(is_first_N)))
    return postings(texts, np.flatnonzero(is_first_N), leaf_map.manifest.language)


def _rule(root: Location, file: File) -> str:
    return schemas.rule_of(parquet.metadata(root / file.name).schema.to_arrow_schema())


if __name__ == "__main__":
    sys.exit(main())

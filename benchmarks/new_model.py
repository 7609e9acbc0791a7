"""A newly trained model, served at once: `make bench-new-model`.

A is the untouched encoder with a router that read documents alone, B learns from judged queries: a head on the stored
vectors, or with `--train last_layer` a part of the transformer, so that every text is to be encoded again. An embedded
server in this process serves A. The table has A, B as it is served first (built from stored vectors, or carried), B the
more of it is encoded, and the control: B built whole. Dev queries measure; the test split is not read.
"""

import asyncio
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.collection import SPEC, folder, made, run
from benchmarks.commands import Options, clock
from benchmarks.tables import table
from rayhier.index.embed_carried import NDCG, REPORT, DevQueries, embed_all
from rayhier.plan import Plan, make_plan
from rayhier.progress import say
from rayhier.serve.args import ServeArgs
from rayhier.serve.embedded import Embedded
from rayhier.spec import load
from rayhier.storage import current, files
from rayhier.storage.paths import locate

DENSE = f"{NDCG} by vectors"
HELD_OUT = 300
"""Train queries that become dev queries, where a collection has none."""
BUILT = ("corpus", "embed", "train", "index")


@dataclass(frozen=True)
class Row:
    """A stage: seconds since the new model was trained, documents still carried, and measures."""

    name: str
    seconds: float
    left: int
    measures: dict[str, float]


def with_dev(name: str, copy: Path) -> Path:
    """The folder of a collection; without dev judgements a copy, some of whose train queries are dev queries."""
    whole = folder(name)
    if (whole / "qrels" / "dev.tsv").is_file():
        return whole
    shutil.copytree(whole, copy, dirs_exist_ok=True)
    head, *rows = (whole / "qrels" / "train.tsv").read_text().splitlines()
    queries = np.array(sorted({row.split("\t")[0] for row in rows}))
    dev = set(np.random.default_rng(0).permutation(queries)[:HELD_OUT].tolist())
    for split, is_dev in (("train", False), ("dev", True)):
        kept = [row for row in rows if (row.split("\t")[0] in dev) == is_dev]
        (copy / "qrels" / f"{split}.tsv").write_text("\n".join([head, *kept]) + "\n")
    return copy


async def swapped(embedded: Embedded, text: str) -> float:
    """Seconds until a server that served A has answered a query with B."""
    began = time.monotonic()
    await embedded.look()
    engine = embedded._served.engine  # noqa: SLF001  the engine below the HTTP application
    await engine.search(engine.rules.request([text]))
    return time.monotonic() - began


def stages(workdir: Path, plan: Plan, overrides: Sequence[str]) -> tuple[list[Row], str]:
    """Train and serve B in a workdir whose current.json names A; the rows of the table, and what the map is."""
    corpus, vectors = made(plan, "corpus", "vectors")
    queries, before = DevQueries.of(corpus, vectors), current.read(workdir)
    rows = [Row("A", 0, 0, queries.measured(workdir, before))]
    run(overrides, stages=BUILT[:3])
    embedded = Embedded(ServeArgs(workdir=str(workdir)))
    began = time.monotonic()
    run(overrides, "--carry")
    carried = time.monotonic() - began
    seconds = asyncio.run(swapped(embedded, queries.queries.texts[0]))
    embedded.close()
    say(f"published after {carried:.1f} s, served {seconds:.1f} s later")
    now = current.read(workdir)
    index = current.artifact(workdir, now, "index")
    left = int(index.record.counts.get("carried", 0))
    measured = queries.measured(workdir, now)
    if not left:
        return [*rows, Row("B, built of stored vectors", carried + seconds, 0, measured)], "none: a head"
    told = files.read_json(index.folder / REPORT)["stages"]
    first = next(stage["seconds"] for stage in told if stage["stage"] == "carried")
    rows.append(Row("B, carried", first + seconds, left, measured))
    embed_all(locate(str(workdir)), now, say)
    for stage in files.read_json(index.folder / REPORT)["stages"][len(told) :]:
        values = {name: stage[name] for name in (NDCG, DENSE)}
        rows.append(Row(f"B, {stage['stage']}", first + seconds + stage["seconds"], stage["left"], values))
    counts = index.record.counts
    return rows, f"{counts['map']}, cosine {counts['cosine']:.3f} to vectors that it did not learn from"


def whole(workdir: Path, plan: Plan, overrides: Sequence[str]) -> Row:
    """The control: B's index as a run builds it."""
    run(overrides, stages=BUILT)
    queries, now = DevQueries.of(*made(plan, "corpus", "vectors")), current.read(workdir)
    seconds = current.artifact(locate(str(workdir)), now, "index").record.seconds
    return Row("B, built whole", seconds, 0, queries.measured(workdir, now))


def lines(name: str, rows: Sequence[Row], control: Row, told: str) -> list[str]:
    """A heading and a table of a collection; gains are shares of what the control gains over A."""
    head = ["", "seconds", "carried documents", NDCG, "of its gain", DENSE, "of its gain"]

    def gain(row: Row, measure: str) -> str:
        whole, base = control.measures[measure], rows[0].measures[measure]
        return f"{(row.measures[measure] - base) / (whole - base):.0%}" if whole != base else "-"

    cells = [
        [row.name, f"{row.seconds:,.0f}", f"{row.left:,}"]
        + [cell for measure in (NDCG, DENSE) for cell in (f"{row.measures[measure]:.4f}", gain(row, measure))]
        for row in [*rows, control]
    ]
    return [f"## {name}", "", f"Map: {told}.", "", *table(head, cells), ""]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train both models of a collection where they are missing, and print its table."""
    parser = Options("A newly trained model, served at once.", "new-model")
    parser.add_argument("collection", nargs="?", default="oewn_examples")
    parser.add_argument("--train", choices=["head", "last_layer", "all"], default="head", help="what B trains")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of both specs")
    parser.add_argument("--new", action="append", default=[], metavar="KEY=VALUE", help="of B's spec alone")
    options, tell = parser.parse_args(arguments), clock()
    workdir = options.workdir / options.collection
    source = with_dev(options.collection, options.workdir / "collections" / options.collection)
    place = [f"workdir={workdir}", f"corpus.path={source.absolute()}", *options.set]
    first = [*place, "train.objective=documents"]
    second = [*place, f"encoder.train={options.train}", *options.new]
    run(first, stages=BUILT)
    tell("A is served")
    plan = make_plan(load(SPEC, second))
    rows, told = stages(workdir, plan, second)
    tell("B is served")
    control = whole(workdir, plan, second)
    tell("B is built whole")
    print("\n".join(["", *lines(f"{options.collection}, {options.train}", rows, control, told)]), flush=True)
    summary = [row.__dict__ for row in [*rows, control]]
    (workdir / f"new-model-{options.train}.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()

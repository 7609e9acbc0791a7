"""Rehearse the MS MARCO job: submit `specs/msmarco.yaml` to a cluster that loses its driver and a node.

The benchmark makes files of MS MARCO's format and an encoder. It runs `--plan` and the job, and then uses the index.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from benchmarks.collection import ROOT
from benchmarks.commands import Options, clock, served
from benchmarks.machine import free_ports
from benchmarks.pages import prose
from benchmarks.rehearsal import encoder, passages
from benchmarks.rehearsal.job import STAGES, Job, Memory
from benchmarks.rehearsal.nodes import cluster
from benchmarks.serve.load import TOKEN, at_a_time
from benchmarks.tables import Goal, table, value_table
from rayhier.evaluate.report import Report

SPEC = "specs/msmarco.yaml"
WITHIN, MOST_BYTES = 2.0, 4e9
"""Factor within which an estimate must be, and most bytes of a process."""
SHARE, EPOCHS, LEAVES, BATCH, SEEDS = 50_000 / 8_841_823, 20, 100, 512, (0, 1, 2)
"""Share of the passages, epochs, leaves, and pairs in a step of the rehearsal. Seeds of the runs by one worker."""
NEW, REQUESTS = 1_000, 200
"""Passages that are added to the index, and requests to the server."""
TITLE = "## A rehearsal of MS MARCO"
ESTIMATE = re.compile(rf"^  ({'|'.join(STAGES)})(?: seed 0)? .*estimated +([\d.,]+) (s|min|h)$", re.MULTILINE)
UNITS = {"s": 1, "min": 60, "h": 3600}


def main() -> int:
    """Rehearse, print the table and write its section; the exit code is 1 where a goal was missed."""
    parser = Options("Rehearse the MS MARCO job.", "rehearsal", "docs")
    parser.add_argument("--share", type=float, default=SHARE, help=f"share of MS MARCO's passages (default {SHARE})")
    given = parser.parse_args()
    tell, size, data = clock(), passages.Size.of(given.share), given.workdir / f"data-{given.share:g}"
    shutil.rmtree(workdir := given.workdir / "run", ignore_errors=True)
    workdir.mkdir(parents=True)
    if not data.exists():
        tell(f"making {size.passages:,} passages, {size.train:,} train queries, {size.test:,} test queries")
        make(data, size)
    sets = overrides(data, workdir, 2, [0])
    memory = Memory()
    with memory.watched():
        memory.at = "plan"
        estimates = plan(sets)
        tell(f"estimated: {estimates}")
        with cluster(given.workdir) as nodes:
            job = Job(nodes, ["python", "-m", "rayhier.run", SPEC, *sets], workdir, given.workdir / "job.log", memory)
            job.run()
        tell("the job succeeded")
        by_nodes = [undisturbed(data, given.workdir, nodes) for nodes in (1, 2)]
        after = list(used(data, workdir, size, memory))
        memory.at = "one worker"
        alone = workdir.with_name("alone")
        shutil.rmtree(alone, ignore_errors=True)
        after += equal(Report.read(workdir / "report.json"), [one_worker(data, alone, seed) for seed in SEEDS])
    after += [faster(stage, *(other.seconds[stage] for other in by_nodes)) for stage in STAGES]
    lines = section(given.share, job, estimates, memory, after)
    print("\n".join(lines))
    write(given.docs / "scale.md", lines)
    met = [is_within(job.took(stage), estimates[stage]) for stage in STAGES]
    met += [largest <= MOST_BYTES for largest in memory.largest.values()]
    return 0 if all(met) and all(goal.met for goal in after if goal.limit is not None) else 1


def make(data: Path, size: passages.Size) -> None:
    """Write passages, queries and the encoder; the folder has its name once all is there."""
    part = data.with_name(f"{data.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    passages.write(part / "msmarco", size)
    encoder.write(part / "encoder", passages.vocabulary())
    part.rename(data)


def overrides(data: Path, workdir: Path, workers: int, seeds: Sequence[int]) -> list[str]:
    """Return the changes to the shipped spec: those for two cores without a GPU, and fewer leaves."""
    sections = {
        "workdir": str(workdir),
        "corpus.path": str(data / "msmarco"),
        "encoder": {"model": str(data / "encoder"), "max_length": 32, "train": "last_layer"},
        "router.branching": str(LEAVES),
        "train.epochs": str(EPOCHS),
        "train.batch_size": str(BATCH),
        "train.encoder_lr": "1e-4",
        "search": {"k": 100, "beam": 4},
        "evaluate.seeds": seeds,
        "evaluate.baselines": ["exact", "exact_same_encoder", "faiss_ivf_same_encoder"],
        "cluster": {stage: {"workers": workers} for stage in ("corpus", "embed", "train", "index", "evaluate")},
    }
    return [part for key, value in sections.items() for part in ("--set", f"{key}={flow(value)}")]


def flow(value: object) -> str:
    """A value of a spec in one line."""
    return value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True, width=10_000).strip()


def plan(sets: Sequence[str]) -> dict[str, float]:
    """Stage -> seconds that `--plan` estimates."""
    text = output("rayhier.run", SPEC, "--plan", *sets, "--set", "cluster.address=local")
    print(text, flush=True)
    return {stage: float(amount.replace(",", "")) * UNITS[unit] for stage, amount, unit in ESTIMATE.findall(text)}


def output(*command: str) -> str:
    """What a command of this Python, `python -m`, prints; ends the benchmark where it fails."""
    call = [sys.executable, "-m", *command]
    ended = subprocess.run(call, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        sys.exit(f"python -m {' '.join(command)}: exit code {ended.returncode}")
    return ended.stdout


def used(data: Path, workdir: Path, size: passages.Size, memory: Memory) -> Iterator[Goal]:
    """What the report says, and what comes of searching the index, serving it, adding to it and checking it."""
    yield from reported(Report.read(workdir / "report.json"))
    memory.at = "search"
    queries, found = data / "msmarco" / "queries.dev.small.tsv", workdir / "found.jsonl"
    began = time.monotonic()
    summary = json.loads(output("rayhier", "search", str(workdir), "--queries", str(queries), "--out", str(found)))
    yield Goal("queries that `rayhier search` answered", summary["queries"], size.test, seen=since(began))
    memory.at = "serve"
    yield from asked(workdir, queries)
    memory.at = "add"
    new = data / "new.jsonl"
    name, text = passages.write_new(new, size, NEW)
    began = time.monotonic()
    output("rayhier", "index", "add", str(workdir), str(new))
    added = since(began)
    top = output("rayhier", "search", str(workdir), text, "-k", "1")
    yield Goal(f"{NEW:,} passages added, and one found by its text", float(name in top), 1, seen=added)
    memory.at = "verify"
    began = time.monotonic()
    output("rayhier", "index", "verify", str(workdir))
    yield Goal("`rayhier index verify`", 1, 1, seen=since(began))


def undisturbed(data: Path, folder: Path, nodes: int) -> Job:
    """Run the job on one node or on two, without kills."""
    workdir = folder / f"nodes-{nodes}"
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir()
    with cluster(folder, nodes) as started:
        command = ["python", "-m", "rayhier.run", SPEC, *overrides(data, workdir, nodes, [0])]
        job = Job(started, command, workdir, folder / f"nodes-{nodes}.log", Memory(), strikes=False)
        job.run()
    return job


def faster(stage: str, one: float, two: float) -> Goal:
    return Goal(f"{stage}: time on one node / on two", one / two, 0.95, seen=f"{one:.0f} s, {two:.0f} s")


def one_worker(data: Path, workdir: Path, seed: int) -> Report:
    """Run the job in one process, without kills."""
    output("rayhier.run", SPEC, *overrides(data, workdir, 1, [seed]))
    return Report.read(workdir / "report.json")


def equal(two: Report, ones: Sequence[Report]) -> Iterator[Goal]:
    """Compare the index trained by two workers with those trained by one. Their seeds give the noise."""
    for measure in ("RR@10", "R@100"):
        values = [one.systems[one.router].measures[measure] for one in ones]
        found, mean = two.systems[two.router].measures[measure], statistics.mean(values)
        seen = f"two workers: {found:.3f}; one worker, by seed: {', '.join(f'{value:.3f}' for value in values)}"
        noise = 2 * statistics.stdev(values)
        yield Goal(f"{measure} by two workers, distance to that by one", abs(found - mean), noise, "most", seen)


def reported(report: Report) -> Iterator[Goal]:
    """RR@10 and R@100 of the index as searched, and of exact search before and after training."""
    names = {"exact": "exact, untrained", "exact_same_encoder": "exact", report.router: "the index"}
    for measure in ("RR@10", "R@100"):
        for system, title in names.items():
            row = report.systems[system]
            yield Goal(f"{measure}, {title}", row.measures[measure], None, seen=f"visits {row.visited:.1%}")


def asked(workdir: Path, queries: Path) -> Iterator[Goal]:
    """Serve the index from a process of its own, and send it queries one by one."""
    (token := workdir / "token").write_text(TOKEN)
    (port,) = free_ports(1)
    texts = [line.rstrip("\n").split("\t")[1] for line in queries.open()][:REQUESTS]
    bodies = [json.dumps({"query": text, "k": 10}).encode() for text in texts]
    command = ["rayhier", "serve", str(workdir), "--port", str(port), "--token-file", str(token)]
    with served(command, f"http://127.0.0.1:{port}/readyz", 600) as ready:
        load = at_a_time(port, "/v1/search", bodies, 1)
    seen = f"ready after {ready:.0f} s; median {load.ms(0.5):.1f} ms, 99% {load.ms(0.99):.1f} ms"
    yield Goal("requests that the server answered, one by one", len(load.answered()), len(bodies), seen=seen)


def since(began: float) -> str:
    """Seconds since a time, as text."""
    return f"{time.monotonic() - began:.0f} s"


def is_within(took: float, estimated: float) -> bool:
    """Return True if an estimate is within the factor that is asked."""
    return 1 / WITHIN <= took / estimated <= WITHIN


def section(share: float, job: Job, estimates: dict[str, float], memory: Memory, after: Sequence[Goal]) -> list[str]:
    """Lines of the page's section: how it was measured, stages, who was killed, and what the index did."""
    size = passages.Size.of(share)
    counts = {"passages": f"{size.passages:,}", "train": f"{size.train:,}", "test": f"{size.test:,}"}
    about = prose(
        "rehearsal/preface.md", **counts, cores=len(os.sched_getaffinity(0)), load=f"{os.getloadavg()[2]:.0f}"
    )
    if share < 1:
        about += ["", f"**This is {share:.1%} of the full size.**"]
    rows = [stage_row(stage, job.took(stage), estimates[stage], memory.largest.get(stage, 0)) for stage in STAGES]
    took, estimated = sum(map(job.took, STAGES)), sum(estimates[stage] for stage in STAGES)
    rows.append(stage_row("all", took, estimated, max(memory.largest.values())))
    head = ["stage", "estimated", "took", "took / estimated", "largest process, GB"]
    others = ", ".join(f"{at} {memory.largest[at] / 1e9:.2f}" for at in memory.largest if at not in STAGES)
    killed = [f"- {kill.line()}" for kill in job.kills]
    stages = ["", *table(head, rows), "", f"Largest processes otherwise, GB: {others}.", "", *killed, ""]
    return [TITLE, "", *about, *stages, *value_table(after)]


def stage_row(name: str, took: float, estimated: float, size: int) -> list[str]:
    """A row of the table of stages."""
    return [name, f"{estimated:,.0f} s", f"{took:,.0f} s", f"{took / estimated:.2f}", f"{size / 1e9:.2f}"]


def write(page: Path, lines: Sequence[str]) -> None:
    """Replace the rehearsal's section of a page, which is its last, or add it."""
    before = page.read_text().partition(f"\n{TITLE}\n")[0].rstrip()
    page.write_text("\n".join([before, "", *lines]).rstrip() + "\n")


if __name__ == "__main__":
    sys.exit(main())

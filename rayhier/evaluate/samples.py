"""Show sample queries with their best results at the end of a report."""

from collections.abc import Mapping
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from rayhier.dataset.documents import result_ids
from rayhier.spec import JobSpec
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import Location

QUERIES, ANSWERS = 5, 3
WIDTH = 100


def samples(spec: JobSpec, corpus: Artifact, judged: Artifact, root: Location) -> list[str]:
    """Make Markdown lines of some evaluated queries and their best results. `judged` has their texts and judgements."""
    rows = columns.read([judged.path(f"judgements/{spec.evaluate.split}.parquet")], ["query_id", "doc_id", "grade"])
    right = {(row["query_id"], row["doc_id"]) for row in rows.to_pylist() if row["grade"] > 0}
    run = _best(root / "runs" / f"{spec.router.type}.seed{spec.evaluate.seeds[0]}.trec")
    names = sorted(run)
    chosen = names[:: max(1, len(names) // QUERIES)][:QUERIES]
    table = columns.read([judged.path("queries.parquet")], ["query_id", "text"])
    table = table.filter(pc.is_in(table["query_id"], pa.array(chosen, pa.string())))
    texts = dict(zip(table["query_id"].to_pylist(), table["text"].to_pylist(), strict=True))
    titles = _titles(corpus, {name for query in chosen for name in run[query]})
    lines = ["## Sample queries", "", "A star marks results that are judged relevant.", "", "```"]
    for query in chosen:
        lines.append(f"? {_short(texts[query])}")
        for name, score in run[query].items():
            mark = "*" if (query, name) in right else " "
            lines.append(f" {mark} {score:.3f}  {_short(titles.get(name, name))}")
    return [*lines, "```", ""]


def _best(path: Location) -> dict[str, dict[str, float]]:
    run: dict[str, dict[str, float]] = {}
    for line in path.read_text().splitlines():
        query, _, document, _, score, _ = line.split(" ")
        answers = run.setdefault(unquote(query), {})
        if len(answers) < ANSWERS:
            answers[unquote(document)] = float(score)
    return run


def _titles(corpus: Artifact, wanted: set[str]) -> Mapping[str, str]:
    names = pa.array(sorted(wanted), pa.string())
    shown: dict[str, str] = {}
    for name in corpus.names("documents/"):
        ids = columns.read([corpus.path(name)], ["doc_id"])["doc_id"]
        results = result_ids(corpus, name, ids)
        is_wanted = pc.is_in(results, names)
        if not pc.any(is_wanted).as_py():
            continue
        table = columns.read([corpus.path(name)], ["title", "text"]).append_column("id", results).filter(is_wanted)
        for row in table.to_pylist():
            shown.setdefault(row["id"], f"{row['title'] or row['id']}: {row['text']}")
    return shown


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"

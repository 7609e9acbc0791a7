"""The configurations that are measured (rows.yaml): the shipped ones, what each leaves out, and the paper's."""

from pathlib import Path

import yaml

from benchmarks.hce.bench import Row

READ = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text())
UNTOUCHED = Row("untouched", None)
JUDGED, ALONE, BRANCHINGS = ([Row(*own) for own in READ[kind].items()] for kind in ("judged", "alone", "branchings"))
LAYERED = {
    name: [Row(row, train, "last_layer") for row, train in rows.items()] for name, rows in READ["layered"].items()
}
EVERY = {row.name: row for row in (*JUDGED, *ALONE)}
PLAIN, S, J, U = (EVERY[f"{name}, as shipped"] for name in ("contrast", "S", "J", "U"))
ROWS = {
    "scifact": JUDGED,
    "acl_title2abs": [PLAIN, S, EVERY["S, tree grown anew"], J],
    "oewn_examples": [PLAIN, S],
}
"""Rows trained by judged pairs, by collection: large ones take minutes a row and seed."""

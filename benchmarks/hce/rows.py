"""The configurations that are measured: the shipped ones, what each leaves out, and the paper's."""

from typing import Any

from benchmarks.hce.bench import Row

CONTRAST: dict[str, Any] = {"type": "contrast"}
SUPERVISED: dict[str, Any] = {"type": "hce", "objective": "supervised"}
JOINT: dict[str, Any] = {"type": "hce", "objective": "joint"}
UNSUPERVISED: dict[str, Any] = {"type": "hce", "objective": "documents"}
FLAT: dict[str, Any] = {"hierarchy": 0, "siblings": 0}
"""HCE without its tree: contrast alone."""
PAPER: dict[str, Any] = {
    "form": "paper",
    "anchor": 0,
    "optimizer": "adafactor",
    "encoder_lr": 1e-3,
    "temperature": 0.01,
    "batch_size": 64,
    "epochs": 20,
    "start": "base",
    "tree": {"branching": "auto"},
}
"""The paper's loss and optimizer, for BEIR. Its batch of 512 is over half of SciFact's pairs. Its rate of 1e-4, for
a whole transformer, hardly moves a head: ten times that."""
UNMINED: dict[str, Any] = {"hard_negatives": {"source": "none"}}
COTRAINED: dict[str, Any] = {"tree": {"branching": "auto", "recluster": "improved"}, "patience": 2}

UNTOUCHED = Row("untouched", None)
PLAIN = Row("contrast, as shipped", CONTRAST)
S = Row("S, as shipped", SUPERVISED)
J = Row("J, as shipped", JOINT)
U = Row("U, as shipped", UNSUPERVISED)

JUDGED = [
    PLAIN,
    Row("contrast, as many negatives as S", {**CONTRAST, "hard_negatives": {"per_query": 6}}),
    Row("contrast, nothing mined", {**CONTRAST, **UNMINED}),
    Row("contrast, no anchor", {**CONTRAST, "anchor": 0}),
    Row("contrast, anchor 16", {**CONTRAST, "anchor": 16}),
    S,
    Row("S without hierarchy", {**SUPERVISED, "hierarchy": 0}),
    Row("S without siblings", {**SUPERVISED, "siblings": 0}),
    Row("S, tree grown anew", {**SUPERVISED, "tree": {"recluster": "improved"}}),
    Row("S, nothing mined", {**SUPERVISED, **UNMINED}),
    Row("S as printed", {**SUPERVISED, **PAPER, **UNMINED}),
    Row("S as printed, co-trained", {**SUPERVISED, **PAPER, **UNMINED, **COTRAINED}),
    J,
    Row("J, anchor 16", {**JOINT, "anchor": 16}),
    Row("J from the base encoder", {**JOINT, "start": "base"}),
    Row("J without tree", {**JOINT, **FLAT}),
    Row("J as printed", {**JOINT, **PAPER, **UNMINED}),
]
"""Trained by judged pairs; told from contrast as shipped."""
ALONE = [
    U,
    Row("U without tree", {**UNSUPERVISED, **FLAT}),
    Row("U from the base encoder", {**UNSUPERVISED, "start": "base"}),
    Row("U, no anchor", {**UNSUPERVISED, "anchor": 0}),
    Row("U as printed", {**UNSUPERVISED, **PAPER}),
]
"""Trained by documents alone; told from the untouched encoder."""
LAYER: dict[str, Any] = {"batch_size": 64, "encoder_lr": 1e-4, "measure_every": 2}
"""Training of the last layer, which encodes every text of a step again: smaller batches, the paper's rate."""
LAYERED = {
    "scifact": [
        Row("U, last layer", {**UNSUPERVISED, **LAYER, "epochs": 2, "measure_every": 1}, "last_layer"),
        Row("S, last layer", {**SUPERVISED, **LAYER, "epochs": 10}, "last_layer"),
    ],
    "cranfield": [Row("U, last layer", {**UNSUPERVISED, **LAYER, "epochs": 8}, "last_layer")],
}
"""One row each with the last layer trained, some 150 steps, by collection."""
BRANCHINGS = [
    Row(f"S, b = {branching}", {**SUPERVISED, "tree": {"branching": branching}}) for branching in (4, 8, 16, 64, 256)
]
"""The paper's Figure 4."""

ROWS = {
    "scifact": JUDGED,
    "acl_title2abs": [PLAIN, S, Row("S, tree grown anew", {**SUPERVISED, "tree": {"recluster": "improved"}}), J],
    "oewn_examples": [PLAIN, S],
}
"""Rows trained by judged pairs, by collection: large ones take minutes a row and seed."""

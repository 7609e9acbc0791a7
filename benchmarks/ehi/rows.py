"""The configurations that are measured (rows.yaml), and the settings that they come to."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rayhier.model.spill import Spill
from rayhier.spec.router import EhiRouting
from rayhier.spec.train import EhiTraining


@dataclass(frozen=True)
class Row:
    """One configuration: what differs from the shipped settings with 40 leaves."""

    name: str
    router: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    second: Spill | None = None
    """How each document gets a second leaf; None where it has one leaf."""
    tuned: bool = False
    """Whether both learning rates are those that folds of the train queries choose for this router."""

    @property
    def routing(self) -> EhiRouting:
        """The `router` of a spec."""
        return EhiRouting.model_validate({"type": "ehi", "branching": 40, **self.router})

    @property
    def training(self) -> EhiTraining:
        """The `train` of a spec."""
        return EhiTraining.model_validate({"type": "ehi", **self.train})


READ = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text())
TABLES = {title: [Row(name, **settings) for name, settings in rows.items()] for title, rows in READ.items()}
"""Table or figure of the paper -> its rows."""
LEAVES, TALLER = TABLES["Figure 5b: leaves"], TABLES["Table 6: 64 leaves, taller"]
GROUPED = [*TABLES["Table 8: the paper's own settings"][:2], LEAVES[-1]]
"""Rows that are told for groups of queries."""
TIMED = [LEAVES[2], LEAVES[4], TALLER[2]]
"""Rows whose searches are timed."""

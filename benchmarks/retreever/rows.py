"""The configurations that are measured (rows.yaml); settings were chosen on dev (docs/LOG.md)."""

from pathlib import Path

import yaml

from benchmarks.retreever.bench import Row

READ = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text())
CORE, NEEDED, MORE, ATTENTIVE, ALIKE = (
    [Row(name, **own) for name, own in READ[kind].items()]
    for kind in ("core", "needed", "once", "attention", "attending")
)
ONCE = [*NEEDED, *MORE]
ATTENDING, *BESIDE_ATTENDING = ATTENTIVE
ATTEND, READ_VECTORS = ALIKE[:3], ALIKE[3:]
"""A tree and its controls that attend to tokens, trained alike in one pass; and rows of vectors with as many steps."""
UNTOUCHED, TRAINED, LINEAR, *ADAPTERS, MRL, ANCHORED, NO_TREE, SHIPPED, CONSTANT, STOCHASTIC, MLP = CORE
"""MRL is the adapter whose directions trees start at."""
KMEANS, MIXTURES, VARIATION, RANDOM_CONSTANT, RANDOM_STOCHASTIC = NEEDED
LEVEL = 64
"""Numbers of the level that is finished by vectors."""
SCHEDULES = ["tree, constant", "tree, linear schedule", "tree, exponential schedule", "tree, stochastic", SHIPPED.name]

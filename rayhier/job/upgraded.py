"""Find what rayhier 0.2.0 made in an upgraded workdir, so that a run reuses it and trains nothing again.

The name of an artifact's folder is a hash of all that the artifact depends on. 0.2.0 hashed other codes of stages, and
keys of the spec that were removed later. So a run also looks for a step under the hash of 0.2.0, with the values of the
run's spec. Removed keys have the values that the artifact was made with. If a value or the source has changed, the hash
differs, and the step is made again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rayhier.spec import JobSpec

RELEASE = "0.2.0"
CODES = {"corpus": 3, "generate": 1, "embed": 1, "cross_encoder": 2, "scores": 1, "train": 11, "index": 6, "factors": 2}
"""Code of each stage in 0.2.0. The stages test, calibrate and evaluate are made again."""
SECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "corpus": {"corpus": ("path", "documents", "queries", "judgements", "revision", "judgements_revision")},
    "cross_encoder": {"cross_encoder": ("model", "sha256", "device", "batch_size", "beside")},
    "scores": {"scores": ()},
    "train": {"router": ("first_pass",), "train": ("micro_batch", "generated")},
    "index": {"index": ("leaves_per_document", "second_leaf", "spilled")},
}
"""Stage -> sections of the spec that 0.2.0 hashed and that lost keys later -> keys that 0.2.0 left out of the hash."""


@dataclass(frozen=True)
class Upgraded:
    """The spec of a run in an upgraded workdir, and `before`: the spec that 0.2.0 wrote there."""

    spec: JobSpec
    before: Mapping[str, Any]

    def parts(self, stage: str, parts: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what 0.2.0 hashed for a stage, besides inputs and seed. None if 0.2.0 made nothing that fits."""
        if stage not in CODES:
            return None
        changed: dict[str, Any] = {
            name: _as_before(parts[name], self.before.get(name) or {}, without)
            for name, without in SECTIONS.get(stage, {}).items()
        }
        match stage:
            case "corpus":
                if parts["corpus"]["language"] != "auto":
                    return None
                if "query_columns" not in parts["corpus"]:
                    changed["corpus"].pop("query_columns", None)
            case "embed" if self.spec.train.type == self.before["train"]["type"] == "contrast":
                if not self.spec.train.changed("objective", "pseudo_queries"):
                    parts = {name: value for name, value in parts.items() if name != "draws"}  # 0.2.0 had no draws
            case "cross_encoder":
                if changed["cross_encoder"].get("layers") is None:
                    changed["cross_encoder"].pop("layers", None)
                changed["pairs"] = []
            case "train" if self.spec.router.spills:
                changed["leaves"] = self._leaves
            case "index":
                changed["leaves"] = self._leaves
            case "factors":
                changed["factors"] = self.before.get("factors")
                if not _is_of_kind(changed["factors"], parts["factors"]):
                    return None
        return {**parts, **changed, "code": CODES[stage]}

    @property
    def _leaves(self) -> list[Any]:
        most, index = self.spec.leaves_per_document, self.before["index"]
        spilled = [index["spilled"]] if self.spec.router.spills else []
        return [1] if most == 1 else [most, index["second_leaf"], *spilled]


def _is_of_kind(factors: Mapping[str, Any] | None, kind: str) -> bool:
    """Return True if the section `factors` of a spec of rayhier 0.2.0 means what `scores.factors: KIND` means today."""
    vectors = "none" if kind == "bias" else kind
    return factors is not None and (factors["bias"], factors["vectors"]) == (True, vectors)


def _as_before(now: Mapping[str, Any], before: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Return the keys of a section of 0.2.0 with the values of today, and removed keys with their old values.

    >>> _as_before({"epochs": 3, "hard": {"refresh": 5}, "new": 1}, {"epochs": 2, "hard": {"refresh": 5, "top": 10}})
    {'epochs': 3, 'hard': {'refresh': 5, 'top': 10}}
    """
    values = {key: now.get(key, value) for key, value in before.items() if key not in without}
    sections = {key for key, value in values.items() if isinstance(value, dict) and isinstance(before[key], dict)}
    return {key: _as_before(value, before[key]) if key in sections else value for key, value in values.items()}

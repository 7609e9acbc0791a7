"""`--schema`: what an editor or a validator reads, against every shipped spec and against mistakes."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from rayhier import run
from rayhier.spec import load
from rayhier.spec.load import _Loader

SPECS = sorted((Path(__file__).parents[3] / "specs").glob("*.yaml"))


def tree(path):
    """YAML is read as a spec is: 2.5e-8 is a number."""
    return yaml.load(path.read_text(), _Loader)


@pytest.fixture
def schema(capsys):
    assert run.main(["--schema"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_shipped_spec_is_valid(path, schema):
    """As written; and it begins with how to run it."""
    jsonschema.validate(tree(path), schema)
    assert load(path).name
    assert f"rayhier run specs/{path.name}" in path.read_text().partition("\nname:")[0]


@pytest.mark.parametrize(
    ("key", "value"), [("trian", {}), ("train", {"epoch": 3}), ("train", {"epochs": 0}), ("corpus", {"type": "bier"})]
)
def test_a_mistake_is_not(key, value, schema):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**tree(SPECS[0]), key: value}, schema)


def test_every_field_is_described(schema):
    """Or it is a section, which describes itself, or has one value."""
    described = {"description", "const", "$ref", "oneOf"}
    for model, found in [*schema["$defs"].items(), ("JobSpec", schema)]:
        assert not [name for name, field in found.get("properties", {}).items() if not described & set(field)], model


TABLE_8 = {
    # spec: leaves, batch, encoder's rate, router's rate, weights
    "fiqa": (5000, 64, 2e-4, 9e-4, (0.03, 0.46, 0.54)),
    "msmarco": (7000, 4096, 2.5e-8, 8e-3, (0.11, 0.84, 0.60)),
    "nq320k": (1000, 1024, 1e-4, 4e-4, (0.2, 0.4, 0.11)),
}


@pytest.mark.parametrize("name", TABLE_8)
def test_the_papers_values(name):
    """EHI's Table 8, copied here by hand."""
    spec = load(SPECS[0].with_name(f"{name}.yaml"))
    train, loss = spec.train, spec.train.loss
    weights = (loss.semantic, loss.indexing, loss.intra_leaf)
    found = (spec.router.branching, train.batch_size, train.encoder_lr, train.router_lr, weights)
    assert found == TABLE_8[name]
    assert (train.epochs, train.hard_negatives.refresh, spec.encoder.train) == (100, 5, "last_layer")

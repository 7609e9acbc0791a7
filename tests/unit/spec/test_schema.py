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

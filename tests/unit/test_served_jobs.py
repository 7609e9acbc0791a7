"""The manifests that serve an index: fields of KubeRay and Kubernetes, and what the code itself accepts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from rayhier.serve.app import RayInstruments
from rayhier.serve.args import ServeArgs
from rayhier.serve.metrics import NAMES, Prometheus

ROOT = Path(__file__).parents[2]
SERVICE_FIELDS = {
    "serveConfigV2",
    "rayClusterConfig",
    "serviceUnhealthySecondThreshold",
    "deploymentUnhealthySecondThreshold",
}


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / "jobs" / name).read_text())


@pytest.fixture
def service() -> dict[str, Any]:
    found: dict[str, Any] = read("rayservice.yaml")
    return found


@pytest.fixture
def config(service: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(service["spec"]["serveConfigV2"])
    return found


def pods(service: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = service["spec"]["rayClusterConfig"]
    return [group["template"] for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]]


def test_a_rayservice(service: dict[str, Any]) -> None:
    assert (service["apiVersion"], service["kind"]) == ("ray.io/v1", "RayService")
    assert set(service["spec"]) <= SERVICE_FIELDS
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert service["spec"]["rayClusterConfig"]["rayVersion"] == pinned["ray"]


def test_the_serve_config_is_one_that_serve_and_the_application_accept(config: dict[str, Any]) -> None:
    schema = ServeDeploySchema.model_validate(config)
    (application,) = schema.applications
    assert application.import_path == "rayhier.serve.app:build"
    args = ServeArgs.model_validate(application.args)
    names = {"ingress", *(f"shards-{number}" for number in range(args.shard_groups or 2))}
    assert {deployment.name for deployment in application.deployments} == names
    assert schema.http_options.host == "0.0.0.0"
    assert args.token_file is not None, "what answers other machines asks for a token"


def test_every_pod_has_the_secrets_that_the_config_names(service: dict[str, Any], config: dict[str, Any]) -> None:
    token = Path(config["applications"][0]["args"]["token_file"])
    images = set()
    for template in pods(service):
        (container,) = template["spec"]["containers"]
        images.add(container["image"])
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert set(mounts) == {volume["name"] for volume in template["spec"]["volumes"]}
        assert mounts["token"]["mountPath"] == str(token.parent)
        assert mounts["token"]["readOnly"]
        assert {"secretRef": {"name": "rayhier-s3"}} in container["envFrom"]
    assert len(images) == 1


def test_the_workers_have_the_cpus_of_all_replicas(service: dict[str, Any], config: dict[str, Any]) -> None:
    asked = sum(
        one["num_replicas"] * one["ray_actor_options"]["num_cpus"] for one in config["applications"][0]["deployments"]
    )
    group = service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]
    cores = int(group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    assert asked <= cores * group["minReplicas"]


def test_the_network_policy_closes_all_but_what_is_asked(service: dict[str, Any], config: dict[str, Any]) -> None:
    policy = read("networkpolicy.yaml")
    assert (policy["apiVersion"], policy["kind"]) == ("networking.k8s.io/v1", "NetworkPolicy")
    chosen = policy["spec"]["podSelector"]["matchLabels"]
    assert all(template["metadata"]["labels"].items() >= chosen.items() for template in pods(service))
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    own, *others = policy["spec"]["ingress"]
    assert own == {"from": [{"podSelector": {"matchLabels": chosen}}]}
    assert all(rule["from"] and rule["ports"] for rule in others)
    ports = [port["port"] for rule in others for port in rule["ports"]]
    assert ports == [config["http_options"]["port"], 8080, 8265]


def test_the_dashboard_draws_every_metric_and_no_other() -> None:
    """Ray puts `ray_` before a name, and `_total`, `_bucket`, `_count`, `_sum` after it."""
    dashboard = json.loads((ROOT / "jobs" / "grafana.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found = {name for expression in shown for name in re.findall(r"ray_(rayhier_[a-z_]+)", expression)}
    plain = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in found}
    assert plain == set(NAMES)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    assert all(panel["title"] and panel["description"] for panel in dashboard["panels"])


def test_metrics_have_the_names_that_are_listed() -> None:
    """Through Ray and in this process."""
    through_ray = [metric.info["name"] for kind in vars(RayInstruments()).values() for metric in kind.values()]
    here = [family.name for family in Prometheus().registry.collect()]
    assert tuple(through_ray) == tuple(here) == NAMES

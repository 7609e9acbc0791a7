"""What jobs/ submits and serves fits what it names: image, specs, arguments, resources, metrics."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from rayhier.run import _parser
from rayhier.serve.app import RayInstruments
from rayhier.serve.args import ServeArgs
from rayhier.serve.metrics import NAMES, Prometheus
from rayhier.spec import load

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)


def read(name):
    return yaml.safe_load((ROOT / "jobs" / name).read_text())


def groups(cluster):
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def container(group):
    (found,) = group["template"]["spec"]["containers"]
    return found


@pytest.fixture
def job():
    return read("rayjob.yaml")["spec"]


@pytest.fixture
def service():
    return read("rayservice.yaml")["spec"]


@pytest.fixture
def config(service):
    return yaml.safe_load(service["serveConfigV2"])


def test_the_entrypoint_is_the_command_and_its_files_are_in_the_image(job):
    python, dash_m, module, *arguments = shlex.split(job["entrypoint"])
    assert (python, dash_m, module) == ("python", "-m", "rayhier.run")
    given = _parser().parse_args(arguments)
    assert "WORKDIR /app\n" in DOCKERFILE
    assert "COPY specs specs\n" in DOCKERFILE
    assert "USER rayhier\n" in DOCKERFILE
    assert f"torch=={PINNED['torch']}" in DOCKERFILE
    spec = load(ROOT / Path(given.spec).relative_to("/app"), given.set)
    mounts = [mount["mountPath"] for mount in container(job["rayClusterSpec"]["headGroupSpec"])["volumeMounts"]]
    assert any(spec.corpus.path.startswith(f"{mount}/") for mount in mounts)
    assert spec.workdir.startswith("s3://")


def test_the_nodes_have_what_the_spec_asks_for(job):
    asked = load(ROOT / "specs" / "msmarco.yaml").cluster
    gpu, cpu = job["rayClusterSpec"]["workerGroupSpecs"]
    limits = container(gpu)["resources"]["limits"]
    for workers in (asked.embed, asked.train, asked.index):
        assert workers.workers <= gpu["replicas"] * int(limits["nvidia.com/gpu"]) / workers.gpus
        assert workers.cpus <= int(limits["cpu"])
    assert (
        asked.corpus.workers * asked.corpus.cpus <= int(container(cpu)["resources"]["limits"]["cpu"]) * cpu["replicas"]
    )


def test_the_serve_config_is_one_that_serve_and_the_application_accept(config):
    schema = ServeDeploySchema.model_validate(config)
    (application,) = schema.applications
    assert application.import_path == "rayhier.serve.app:build"
    args = ServeArgs.model_validate(application.args)
    names = {"ingress", *(f"shards-{number}" for number in range(args.shard_groups or 2))}
    assert {deployment.name for deployment in application.deployments} == names
    assert schema.http_options.host == "0.0.0.0"
    assert args.token_file is not None, "what answers other machines asks for a token"


def test_the_network_policy_closes_all_but_what_is_asked(service, config):
    policy = read("networkpolicy.yaml")["spec"]
    chosen = policy["podSelector"]["matchLabels"]
    for group in groups(service["rayClusterConfig"]):
        assert group["template"]["metadata"]["labels"].items() >= chosen.items()
    assert policy["policyTypes"] == ["Ingress"]
    own, *others = policy["ingress"]
    assert own == {"from": [{"podSelector": {"matchLabels": chosen}}]}
    assert all(rule["from"] for rule in others)
    ports = [port["port"] for rule in others for port in rule["ports"]]
    assert ports == [config["http_options"]["port"], 8080, 8265]


def test_the_dashboard_draws_every_metric_and_no_other():
    """Ray puts `ray_` before a name, and `_total`, `_bucket`, `_count`, `_sum` after it."""
    dashboard = json.loads((ROOT / "jobs" / "grafana.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found = {name for expression in shown for name in re.findall(r"ray_(rayhier_[a-z_]+)", expression)}
    assert {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in found} == set(NAMES)
    # They have the names that are listed, through Ray and in this process.
    through_ray = [metric.info["name"] for kind in vars(RayInstruments()).values() for metric in kind.values()]
    here = [family.name for family in Prometheus().registry.collect()]
    assert tuple(through_ray) == tuple(here) == NAMES


def test_every_pod_has_the_image_the_keys_and_its_volumes(job, service, config):
    token = Path(config["applications"][0]["args"]["token_file"])
    for cluster, served in ((job["rayClusterSpec"], False), (service["rayClusterConfig"], True)):
        assert cluster["rayVersion"] == PINNED["ray"]
        assert len({container(group)["image"] for group in groups(cluster)}) == 1
        for group in groups(cluster):
            assert {"secretRef": {"name": "rayhier-s3"}} in container(group)["envFrom"]
            mounts = {mount["name"]: mount for mount in container(group)["volumeMounts"]}
            assert set(mounts) == {volume["name"] for volume in group["template"]["spec"]["volumes"]}
            if served:
                assert (mounts["token"]["mountPath"], mounts["token"]["readOnly"]) == (str(token.parent), True)

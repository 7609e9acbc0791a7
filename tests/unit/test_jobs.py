"""What jobs/ submits and serves fits what it names: image, specs, arguments, resources, metrics."""

import json
import re
import shlex
import tomllib
from collections import Counter
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from pydantic import ValidationError
from ray.serve.schema import ServeDeploySchema

from rayhier.run import _parser
from rayhier.search.retrieve import RERANKER
from rayhier.serve.app import RayInstruments
from rayhier.serve.args import ServeArgs
from rayhier.serve.metrics import NAMES, Prometheus
from rayhier.spec import load

from . import kuberay

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)


def read(name):
    return yaml.safe_load((ROOT / "jobs" / name).read_text())


def groups(cluster):
    return [cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])]


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


@pytest.fixture
def spec(job):
    """The spec as the job runs it."""
    given = _parser().parse_args(shlex.split(job["entrypoint"])[3:])
    return load(ROOT / Path(given.spec).relative_to("/app"), given.set)


@pytest.mark.parametrize(
    "name", ["rayjob.yaml", "rayservice.yaml", "networkpolicy.yaml", "kind/rayjob.yaml", "kind/rayservice.yaml"]
)
def test_kuberay_and_kubernetes_know_every_field(name):
    for manifest in yaml.safe_load_all((ROOT / "jobs" / name).read_text()):
        kuberay.check(manifest)


@pytest.mark.parametrize(
    "place",
    [
        lambda manifest: manifest["spec"],
        lambda manifest: manifest["spec"]["rayClusterConfig"],
        lambda manifest: manifest["spec"]["rayClusterConfig"]["workerGroupSpecs"][0],
        lambda manifest: manifest["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"],
        lambda manifest: container(manifest["spec"]["rayClusterConfig"]["workerGroupSpecs"][0])["resources"],
    ],
)
def test_a_misspelt_field_is_found(place):
    manifest = read("rayservice.yaml")
    place(manifest)["misspelt"] = {}
    with pytest.raises((ValidationError, kubernetes_validate.ValidationError), match="misspelt"):
        kuberay.check(manifest)


def test_one_tag_is_built_pushed_loaded_and_run(job, service):
    pages = [
        DOCKERFILE,
        *(path.read_text() for path in [ROOT / "docs" / "cluster.md", *(ROOT / "jobs").rglob("*.yaml")]),
    ]
    tags = [tag for page in pages for tag in re.findall(r"rayhier:([\w.-]+)", page)]
    assert set(tags) == {f"{VERSION}-{target}" for target in ("cpu", "gpu")}
    assert re.findall(r"^FROM base AS (\w+)$", DOCKERFILE, re.MULTILINE) == ["cpu", "gpu"]
    assert re.findall(r"whl\)\[train,(\w+),demo\]", DOCKERFILE) == ["cpu", "gpu"]
    for cluster in (job["rayClusterSpec"], service["rayClusterConfig"]):
        for group in groups(cluster):
            target = "gpu" if "nvidia.com/gpu" in container(group)["resources"]["limits"] else "cpu"
            assert container(group)["image"] == f"REGISTRY/rayhier:{VERSION}-{target}"


def test_the_entrypoint_is_the_command_and_its_files_are_in_the_image(job, spec):
    assert shlex.split(job["entrypoint"])[:3] == ["python", "-m", "rayhier.run"]
    assert "WORKDIR /app\n" in DOCKERFILE
    for line in (
        "COPY specs specs",
        "USER 1000",
        f"RUN pip install --no-cache-dir -c constraints.txt $PIP_ARGS torch=={PINNED['torch']}",
    ):
        assert DOCKERFILE.count(f"{line}\n") == 2
    mounts = [mount["mountPath"] for mount in container(job["rayClusterSpec"]["headGroupSpec"])["volumeMounts"]]
    assert any(spec.corpus.path.startswith(f"{mount}/") for mount in mounts)
    assert spec.workdir.startswith("s3://")


def test_the_nodes_have_what_the_spec_asks_for(job, spec):
    asked = spec.cluster
    gpu, cpu = job["rayClusterSpec"]["workerGroupSpecs"]
    limits = container(gpu)["resources"]["limits"]
    for workers in (asked.embed, asked.train, asked.index):
        assert workers.workers <= gpu["replicas"] * int(limits["nvidia.com/gpu"]) / workers.gpus
        assert workers.cpus <= int(limits["cpu"])
    assert (
        asked.corpus.workers * asked.corpus.cpus <= int(container(cpu)["resources"]["limits"]["cpu"]) * cpu["replicas"]
    )


def test_the_service_has_the_deployments_of_the_jobs_index(config, spec):
    (application,) = ServeDeploySchema.model_validate(config).applications
    args = ServeArgs.model_validate(application.args)
    assert args.workdir == spec.workdir
    names = {"ingress", *(f"shards-{number}" for number in range(args.shard_groups or 2))}
    if spec.search.reranking is not None:
        names |= {RERANKER}
    assert {deployment.name for deployment in application.deployments} == names


@pytest.mark.parametrize("bound", ["min", "max"])
def test_the_pods_hold_the_replicas(service, config, bound):
    """Compare the least numbers, and the most. In Ray, a pod has as many CPUs and GPUs as its limits say."""
    (application,) = config["applications"]
    needs, pods = Counter(), Counter()
    for deployment in application["deployments"]:
        for resource, amount in deployment["ray_actor_options"].items():
            needs[resource] += amount * deployment["autoscaling_config"][f"{bound}_replicas"]
    for group in service["rayClusterConfig"]["workerGroupSpecs"]:
        limits = container(group)["resources"]["limits"]
        pods["num_cpus"] += int(limits["cpu"]) * group[f"{bound}Replicas"]
        pods["num_gpus"] += int(limits.get("nvidia.com/gpu", 0)) * group[f"{bound}Replicas"]
    assert needs <= pods
    assert needs["num_gpus"] == pods["num_gpus"]


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
        for group in groups(cluster):
            assert {"secretRef": {"name": "rayhier-s3"}} in container(group)["envFrom"]
            security = group["template"]["spec"]["securityContext"]
            assert f"useradd --uid {security['fsGroup']} " in DOCKERFILE
            mounts = {mount["name"]: mount for mount in container(group)["volumeMounts"]}
            assert set(mounts) == {volume["name"] for volume in group["template"]["spec"]["volumes"]}
            if served:
                assert (mounts["token"]["mountPath"], mounts["token"]["readOnly"]) == (str(token.parent), True)

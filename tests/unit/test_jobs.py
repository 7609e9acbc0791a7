"""What jobs/ submits and serves fits what it names: image, specs, arguments; and fields of KubeRay and Kubernetes."""

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


def read(name):
    return yaml.safe_load((ROOT / "jobs" / name).read_text())


def pods(cluster):
    return [group["template"] for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]]


@pytest.fixture
def job():
    return read("rayjob.yaml")


@pytest.fixture
def groups(job):
    cluster = job["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def test_a_rayjob(job, groups):
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert set(job["spec"]) <= JOB_FIELDS
    assert set(job["spec"]["rayClusterSpec"]) <= CLUSTER_FIELDS
    assert job["spec"]["submissionMode"] in ("K8sJobMode", "HTTPMode")
    assert set(yaml.safe_load(job["spec"]["runtimeEnvYAML"])) <= {"env_vars"}
    assert [group.get("groupName") for group in groups] == [None, "gpu", "cpu"]
    for group in groups:
        assert set(group) <= GROUP_FIELDS
        assert group.get("minReplicas", 0) <= group.get("replicas", 0) <= group.get("maxReplicas", 0)
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


JOB_FIELDS = {
    "entrypoint",
    "submissionMode",
    "backoffLimit",
    "submitterConfig",
    "shutdownAfterJobFinishes",
    "ttlSecondsAfterFinished",
    "runtimeEnvYAML",
    "rayClusterSpec",
}
CLUSTER_FIELDS = {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
GROUP_FIELDS = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


def test_the_entrypoint_is_the_command_and_its_files_are_in_the_image(job):
    python, dash_m, module, *arguments = shlex.split(job["spec"]["entrypoint"])
    assert (python, dash_m, module) == ("python", "-m", "rayhier.run")
    given = _parser().parse_args(arguments)
    assert "WORKDIR /app\n" in DOCKERFILE
    assert "COPY specs specs\n" in DOCKERFILE
    spec = load(ROOT / Path(given.spec).relative_to("/app"), given.set)
    mounts = [mount["mountPath"] for mount in _head(job)["volumeMounts"]]
    assert any(spec.corpus.path.startswith(f"{mount}/") for mount in mounts)
    assert spec.workdir.startswith("s3://")


def _head(job):
    return job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]


def test_the_nodes_have_what_the_spec_asks_for(groups):
    asked = load(ROOT / "specs" / "msmarco.yaml").cluster
    gpu, cpu = groups[1:]
    limits = gpu["template"]["spec"]["containers"][0]["resources"]["limits"]
    for workers in (asked.embed, asked.train, asked.index):
        assert workers.workers <= gpu["replicas"] * int(limits["nvidia.com/gpu"]) / workers.gpus
        assert workers.cpus <= int(limits["cpu"])
    cores = int(cpu["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    assert asked.corpus.workers * asked.corpus.cpus <= cores * cpu["replicas"]


PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)


def test_the_image_has_this_torch_is_no_roots_and_holds_what_it_copies():
    assert "FROM python:3.11-slim" in DOCKERFILE
    assert f"torch=={PINNED['torch']}" in DOCKERFILE
    lines = [line.split() for line in DOCKERFILE.splitlines()]
    copied = {name for line in lines if line[:1] == ["COPY"] and "--from=native" not in line for name in line[1:-1]}
    assert copied >= {"rayhier", "specs", "jobs"}
    assert all((ROOT / name).exists() for name in copied)
    assert [line[1] for line in lines if line[:1] == ["USER"]] == ["rayhier"]
    assert 'ENTRYPOINT ["python", "-m", "rayhier.run"]' in DOCKERFILE


def test_a_runtime_environment_of_variables_alone():
    found = read("runtime_env.yaml")
    assert set(found) == {"env_vars"}
    assert all(isinstance(value, str) for value in found["env_vars"].values())
    assert not any("KEY" in name or "TOKEN" in name for name in found["env_vars"] if name != "TOKENIZERS_PARALLELISM")


SERVICE_FIELDS = {
    "serveConfigV2",
    "rayClusterConfig",
    "serviceUnhealthySecondThreshold",
    "deploymentUnhealthySecondThreshold",
}


@pytest.fixture
def service():
    return read("rayservice.yaml")


@pytest.fixture
def config(service):
    return yaml.safe_load(service["spec"]["serveConfigV2"])


def test_the_serve_config_is_one_that_serve_and_the_application_accept(service, config):
    assert (service["apiVersion"], service["kind"]) == ("ray.io/v1", "RayService")
    assert set(service["spec"]) <= SERVICE_FIELDS
    schema = ServeDeploySchema.model_validate(config)
    (application,) = schema.applications
    assert application.import_path == "rayhier.serve.app:build"
    args = ServeArgs.model_validate(application.args)
    names = {"ingress", *(f"shards-{number}" for number in range(args.shard_groups or 2))}
    assert {deployment.name for deployment in application.deployments} == names
    assert schema.http_options.host == "0.0.0.0"
    assert args.token_file is not None, "what answers other machines asks for a token"


def test_the_workers_have_the_cpus_of_all_replicas(service, config):
    asked = sum(
        one["num_replicas"] * one["ray_actor_options"]["num_cpus"] for one in config["applications"][0]["deployments"]
    )
    group = service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]
    cores = int(group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    assert asked <= cores * group["minReplicas"]


def test_the_network_policy_closes_all_but_what_is_asked(service, config):
    policy = read("networkpolicy.yaml")
    assert (policy["apiVersion"], policy["kind"]) == ("networking.k8s.io/v1", "NetworkPolicy")
    chosen = policy["spec"]["podSelector"]["matchLabels"]
    assert all(
        template["metadata"]["labels"].items() >= chosen.items()
        for template in pods(service["spec"]["rayClusterConfig"])
    )
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    own, *others = policy["spec"]["ingress"]
    assert own == {"from": [{"podSelector": {"matchLabels": chosen}}]}
    assert all(rule["from"] and rule["ports"] for rule in others)
    ports = [port["port"] for rule in others for port in rule["ports"]]
    assert ports == [config["http_options"]["port"], 8080, 8265]


def test_the_dashboard_draws_every_metric_and_no_other():
    """Ray puts `ray_` before a name, and `_total`, `_bucket`, `_count`, `_sum` after it."""
    dashboard = json.loads((ROOT / "jobs" / "grafana.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found = {name for expression in shown for name in re.findall(r"ray_(rayhier_[a-z_]+)", expression)}
    plain = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in found}
    assert plain == set(NAMES)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    assert all(panel["title"] and panel["description"] for panel in dashboard["panels"])
    # They have the names that are listed, through Ray and in this process.
    through_ray = [metric.info["name"] for kind in vars(RayInstruments()).values() for metric in kind.values()]
    here = [family.name for family in Prometheus().registry.collect()]
    assert tuple(through_ray) == tuple(here) == NAMES


def test_every_pod_has_the_image_the_keys_and_its_volumes(job, service, config):
    token = Path(config["applications"][0]["args"]["token_file"])
    for cluster, served in ((job["spec"]["rayClusterSpec"], False), (service["spec"]["rayClusterConfig"], True)):
        assert cluster["rayVersion"] == PINNED["ray"]
        images = set()
        for template in pods(cluster):
            (container,) = template["spec"]["containers"]
            images.add(container["image"])
            assert {"secretRef": {"name": "rayhier-s3"}} in container["envFrom"]
            mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
            assert set(mounts) == {volume["name"] for volume in template["spec"]["volumes"]}
            if served:
                assert (mounts["token"]["mountPath"], mounts["token"]["readOnly"]) == (str(token.parent), True)
        assert len(images) == 1

"""What jobs/ submits fits what it names: the image, the specs, the cluster section; and KubeRay's ray.io/v1 fields."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from rayhier.run import _parser
from rayhier.spec import load

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / "jobs" / name).read_text())


@pytest.fixture
def job() -> dict[str, Any]:
    found: dict[str, Any] = read("rayjob.yaml")
    return found


@pytest.fixture
def groups(job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = job["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def test_a_rayjob(job: dict[str, Any], groups: list[dict[str, Any]]) -> None:
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


def test_every_pod_has_the_image_the_keys_and_its_volumes(groups: list[dict[str, Any]]) -> None:
    images = set()
    for group in groups:
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        images.add(container["image"])
        assert {"secretRef": {"name": "rayhier-s3"}} in container["envFrom"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert len(images) == 1


def test_the_entrypoint_is_the_command_and_its_files_are_in_the_image(job: dict[str, Any]) -> None:
    python, dash_m, module, *arguments = shlex.split(job["spec"]["entrypoint"])
    assert (python, dash_m, module) == ("python", "-m", "rayhier.run")
    given = _parser().parse_args(arguments)
    assert "WORKDIR /app\n" in DOCKERFILE
    assert "COPY specs specs\n" in DOCKERFILE
    spec = load(ROOT / Path(given.spec).relative_to("/app"), given.set)
    mounts = [mount["mountPath"] for mount in _head(job)["volumeMounts"]]
    assert any(spec.corpus.path.startswith(f"{mount}/") for mount in mounts)
    assert spec.workdir.startswith("s3://")


def _head(job: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    return container


def test_the_nodes_have_what_the_spec_asks_for(groups: list[dict[str, Any]]) -> None:
    asked = load(ROOT / "specs" / "msmarco.yaml").cluster
    gpu, cpu = groups[1:]
    limits = gpu["template"]["spec"]["containers"][0]["resources"]["limits"]
    for workers in (asked.embed, asked.train, asked.index):
        assert workers.workers <= gpu["replicas"] * int(limits["nvidia.com/gpu"]) / workers.gpus
        assert workers.cpus <= int(limits["cpu"])
    cores = int(cpu["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    assert asked.corpus.workers * asked.corpus.cpus <= cores * cpu["replicas"]


def test_ray_and_python_are_the_images(job: dict[str, Any]) -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == pinned["ray"]
    assert "FROM python:3.11-slim" in DOCKERFILE
    assert f"torch=={pinned['torch']}" in DOCKERFILE


def test_the_image_is_no_roots_and_holds_what_it_copies() -> None:
    lines = [line.split() for line in DOCKERFILE.splitlines()]
    copied = {name for line in lines if line[:1] == ["COPY"] for name in line[1:-1]}
    assert copied >= {"rayhier", "specs", "jobs"}
    assert all((ROOT / name).exists() for name in copied)
    assert [line[1] for line in lines if line[:1] == ["USER"]] == ["rayhier"]
    assert 'ENTRYPOINT ["python", "-m", "rayhier.run"]' in DOCKERFILE


def test_a_runtime_environment_of_variables_alone() -> None:
    found = read("runtime_env.yaml")
    assert set(found) == {"env_vars"}
    assert all(isinstance(value, str) for value in found["env_vars"].values())
    assert not any("KEY" in name or "TOKEN" in name for name in found["env_vars"] if name != "TOKENIZERS_PARALLELISM")

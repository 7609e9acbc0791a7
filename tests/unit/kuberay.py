"""The fields of KubeRay's API ray.io/v1 that jobs/ uses, copied by hand from its types of 1.5.1 to 1.7.0.

Any other field is an error. Kubernetes would silently drop a misspelt field. Deprecated fields are left out.
"""

from typing import Annotated, Literal

import kubernetes_validate
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

KUBERNETES = "1.34"


def known(kind, version, **parts):
    kubernetes_validate.validate(
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **parts}, KUBERNETES, strict=True
    )


def pod(template):
    known("PodTemplate", "v1", template=template)
    return template


class Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Group(Fields):
    rayStartParams: dict[str, str]
    template: Annotated[dict, AfterValidator(pod)]


class WorkerGroup(Group):
    groupName: str
    replicas: int
    minReplicas: int
    maxReplicas: int


class AuthOptions(Fields):
    mode: Literal["disabled", "token"]


class Cluster(Fields):
    rayVersion: str
    authOptions: AuthOptions
    enableInTreeAutoscaling: bool = False
    headGroupSpec: Group
    workerGroupSpecs: list[WorkerGroup] = []

    @model_validator(mode="after")
    def _the_autoscaler_runs_where_the_number_of_pods_may_change(self):
        for group in self.workerGroupSpecs:
            assert group.minReplicas <= group.replicas <= group.maxReplicas
            assert group.minReplicas == group.maxReplicas or self.enableInTreeAutoscaling
        return self


class Submitter(Fields):
    backoffLimit: int


class Job(Fields):
    entrypoint: str
    submissionMode: Literal["K8sJobMode", "HTTPMode", "SidecarMode"] = "K8sJobMode"
    backoffLimit: int = 0
    submitterConfig: Submitter | None = None
    shutdownAfterJobFinishes: bool = False
    ttlSecondsAfterFinished: int = Field(default=0, ge=0)
    runtimeEnvYAML: str = ""
    rayClusterSpec: Cluster


class Service(Fields):
    serveConfigV2: str
    rayClusterConfig: Cluster


class Named(Fields):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,40}$")]


class Resource(Fields):
    apiVersion: Literal["ray.io/v1"]
    metadata: Named


class RayJob(Resource):
    kind: Literal["RayJob"]
    spec: Job


class RayService(Resource):
    kind: Literal["RayService"]
    spec: Service


def check(manifest):
    """Check a manifest of KubeRay or of Kubernetes itself. A field that is not known is an error."""
    match manifest["kind"]:
        case "RayJob":
            RayJob.model_validate(manifest)
        case "RayService":
            RayService.model_validate(manifest)
        case kind:
            known(kind, manifest["apiVersion"], spec=manifest["spec"])

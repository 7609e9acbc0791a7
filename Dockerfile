# rayhier for one machine, and for every node of a Ray cluster (KubeRay: jobs/rayjob.yaml, jobs/rayservice.yaml).
# There are two targets. Choose `cpu` for nodes without a GPU, and `gpu` for nodes with one.
#
#     docker build --target cpu -t REGISTRY/rayhier:0.2.0-cpu .
#     docker build --target gpu -t REGISTRY/rayhier:0.2.0-gpu .
#     docker run --rm -v rayhier-runs:/app/runs REGISTRY/rayhier:0.2.0-cpu
#     docker run --rm --entrypoint ray REGISTRY/rayhier:0.2.0-cpu start --head --block
#
# `make package` runs the pip lines of `cpu` and resolves those of `gpu`. No image was ever built, because we had no Docker.
# CUDA: torch 2.13 brings CUDA 13.0, and faiss-gpu 1.15 brings CUDA 12, as Python packages. The node brings the driver,
# version 580 or newer.
# KubeRay replaces entrypoint and command with `ray start`. All nodes of a cluster need the same Python (3.11) and
# the same Ray (constraints.txt). So does the machine that submits a job.
FROM python:3.11-slim AS native
RUN apt-get update && apt-get install -y --no-install-recommends g++
WORKDIR /native
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY rayhier rayhier
RUN pip wheel --no-cache-dir --no-deps -w wheels .

# KubeRay's probes need wget, and Ray's dashboard needs procps.
FROM python:3.11-slim AS base
RUN apt-get update && apt-get install -y --no-install-recommends wget procps && rm -rf /var/lib/apt/lists/*
WORKDIR /app
RUN useradd --uid 1000 --create-home rayhier && mkdir runs && chown rayhier runs
COPY constraints.txt ./
ENTRYPOINT ["python", "-m", "rayhier.run"]
CMD ["specs/quickstart.yaml"]

# torch's usual build for Linux brings CUDA. An index of its CPU builds keeps gigabytes out of this target:
#     docker build --target cpu --build-arg PIP_ARGS="--extra-index-url URL" -t REGISTRY/rayhier:0.2.0-cpu .
FROM base AS cpu
ARG PIP_ARGS=""
RUN pip install --no-cache-dir -c constraints.txt $PIP_ARGS torch==2.13.0
COPY --from=native /native/wheels wheels
RUN pip install --no-cache-dir -c constraints.txt $PIP_ARGS "$(echo wheels/rayhier-*.whl)[train,cpu,demo]"
COPY specs specs
USER 1000

FROM base AS gpu
ARG PIP_ARGS=""
RUN pip install --no-cache-dir -c constraints.txt $PIP_ARGS torch==2.13.0
COPY --from=native /native/wheels wheels
RUN pip install --no-cache-dir -c constraints.txt $PIP_ARGS "$(echo wheels/rayhier-*.whl)[train,gpu,demo]"
COPY specs specs
USER 1000

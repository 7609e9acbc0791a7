# rayhier for one machine, and for every node of a Ray cluster (KubeRay: jobs/rayjob.yaml, jobs/serve.yaml).
# Not built yet: no Docker was at hand where it was written.
#
#     docker build -t rayhier .
#     docker run --rm -v rayhier-runs:/app/runs rayhier specs/quickstart.yaml
#     docker run --rm --entrypoint ray rayhier start --head --block        # or any other of ray's commands
#
# KubeRay replaces entrypoint and command by its own `ray start`. All nodes of a cluster, and whoever submits to it, run
# the same Python (3.11) and the same Ray (constraints.txt): an image of its own for each node type keeps both.
FROM python:3.11-slim AS native
RUN apt-get update && apt-get install -y --no-install-recommends g++
WORKDIR /native
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY rayhier rayhier
RUN pip wheel --no-cache-dir --no-deps -w /wheels .

FROM python:3.11-slim

# KubeRay's probes ask by wget whether a node is well; procps is what Ray's dashboard looks at processes with.
RUN apt-get update \
    && apt-get install -y --no-install-recommends wget procps \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /app
# torch's usual build for Linux brings CUDA, for GPU nodes. An index of its CPU builds keeps gigabytes out:
#     docker build --build-arg PIP_ARGS="--extra-index-url URL" -t rayhier .
ARG PIP_ARGS=""

COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN pip install --no-cache-dir -c constraints.txt $PIP_ARGS torch==2.13.0
COPY --from=native /wheels /wheels
RUN pip install --no-cache-dir -c constraints.txt $PIP_ARGS "$(ls /wheels/rayhier-*.whl)[train,cpu,demo]"
COPY specs specs
COPY jobs jobs

RUN useradd --create-home rayhier && mkdir runs && chown rayhier runs
USER rayhier
ENTRYPOINT ["python", "-m", "rayhier.run"]
CMD ["specs/quickstart.yaml"]

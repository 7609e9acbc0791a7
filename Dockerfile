# rayhier on CPU, for a Ray node or one machine. Not built yet: no Docker was at hand where it was written.
#     docker build -t rayhier .
#     docker run --rm -v "$PWD/runs:/app/runs" rayhier specs/quickstart.yaml
FROM python:3.11-slim

WORKDIR /app
# An index of torch's CPU builds, for instance, keeps CUDA packages out: --build-arg PIP_ARGS="--extra-index-url URL"
ARG PIP_ARGS=""

COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY rayhier rayhier
RUN pip install --no-cache-dir -c constraints.txt $PIP_ARGS torch==2.13.0 \
    && pip install --no-cache-dir -c constraints.txt $PIP_ARGS '.[cpu,demo]'
COPY specs specs

RUN useradd --create-home rayhier && mkdir runs && chown rayhier runs
USER rayhier
ENTRYPOINT ["python", "-m", "rayhier.run"]
CMD ["specs/quickstart.yaml"]

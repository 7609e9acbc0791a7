"""What every test shares: one Ray cluster a session, the collections, a tiny encoder and a tiny corpus."""

import itertools
import json
import logging
import os
import socket
import threading
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import settings

import rayhier  # noqa: F401  before torch, so that OpenMP waits as it does in a run
from rayhier.storage import current
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import locate

from . import toys
from .draws import unit
from .toys import tiny_bert

# An example's time says how busy the machine is.
settings.register_profile("rayhier", deadline=None)
settings.load_profile("rayhier")

ROOT = Path(__file__).parents[1]
TEXT = "leaf root branch tree river stone cloud rain bird fish moss fern pine oak ash elm wolf bear deer hare"
WORDS = TEXT.split()
DOCUMENTS, QUERIES = 240, 120


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """After several processes: the seconds of every folder and process, and a closing line without colours or rules."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not config.getoption("numprocesses", None):
        return
    seconds: Counter[str] = Counter()
    for report in itertools.chain.from_iterable(reporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds["/".join(Path(report.fspath).parts[:2])] += report.duration
            seconds[getattr(report, "worker_id", "a process that died")] += report.duration
    reporter.line(", ".join(f"{name} {spent:.0f} s" for name, spent in sorted(seconds.items())))
    passed, *failed = (len(reporter.stats.get(outcome, [])) for outcome in ("passed", "failed", "error"))
    reporter.line(f"{passed} passed, {sum(failed)} failed")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """What searches and fetches keep on this machine, the session's own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("RAYHIER_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def bucket():
    """`s3://…` of a bucket on a server in this process, with the environment that finds it."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "tester")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_REGION", "us-east-1")
        one, put = threading.Lock(), S3Response.put_object

        def put_object(self: S3Response) -> object:
            with one:  # between looking for the key and writing it the server would let another writer in
                return put(self)

        patch.setattr(S3Response, "put_object", put_object)
        # It would look through all services that it knows, for a third of a request's time.
        patch.setattr(DomainDispatcherApplication, "get_backend_for_host", lambda *_: "s3")
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/rayhier", method="PUT")).close()
        yield "s3://rayhier"
    server.stop()


@pytest.fixture
def s3(bucket):
    """A prefix in the bucket for one test alone."""
    return f"{bucket}/{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=["local", "s3"])
def anywhere(request, tmp_path):
    """An empty place for one test alone, on this machine and in a bucket."""
    return locate(request.getfixturevalue("s3")) if request.param == "s3" else tmp_path


@pytest.fixture
def port():
    """A port of 127.0.0.1 that is free at this moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


@pytest.fixture
def folder(anywhere):
    return anywhere


@pytest.fixture
def answering(bucket, monkeypatch):
    """`answering(GET=(status, body), …)`: from here on buckets are on a server that says only this."""
    answers: dict[str, tuple[int, str]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = answers[self.command]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        yield answers.update
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def cluster(bucket):
    """A local Ray cluster of eight logical CPUs, whatever the machine has; its workers find the bucket."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    ray.shutdown()  # of a test that began one
    ray.init(
        address="local",
        num_cpus=8,
        num_gpus=1,
        object_store_memory=200_000_000,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def data():
    """`data("scifact")`: the folder of a collection. A test that needs one fails where there is none."""

    def find(name: str) -> Path:
        given = os.environ.get("RAYHIER_DATA")
        places = [*([Path(given)] if given else []), ROOT / "data", ROOT.parent / "shared" / "data"]
        for place in places:
            if (place / name / "corpus.jsonl").is_file():
                return place / name
        tried = ", ".join(str(place) for place in places)
        return pytest.fail(f"collection {name!r} is in none of {tried}: set RAYHIER_DATA to the folder that holds it")

    return find


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A BERT of one layer and 32 dimensions with random weights, in sentence-transformers' layout."""
    return tiny_bert(tmp_path_factory.mktemp("tiny-model"), WORDS)


def ray_processes(*titles: str) -> Iterator[int]:
    """Process ids of Ray workers whose title holds one of these, of clusters that this process began, or its runs."""
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    for pid in parents:
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if title.startswith("ray::") and any(one in title for one in titles) and os.getpid() in _above(pid, parents):
            yield pid


def _parent(entry: Path) -> int:
    """Parent of a process; 0 where it has ended."""
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _above(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """Parent, grandparent and so on."""
    while pid := parents.get(pid, 0):
        yield pid


def make_corpus(folder: Path) -> Path:
    """Write a BEIR folder: each query holds three words of its one relevant document."""
    (folder / "qrels").mkdir(parents=True)
    documents = [
        {
            "_id": f"d{n}",
            "title": f"{WORDS[n % 20]} {n}",
            "text": " ".join(WORDS[(n * step) % 20] for step in range(1, 9)),
        }
        for n in range(DOCUMENTS)
    ]
    queries = [{"_id": f"q{n}", "text": " ".join(documents[n]["text"].split()[:3]) + f" {n}"} for n in range(QUERIES)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    for split, rows in {"train": range(80), "test": range(80, QUERIES)}.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"q{n}\td{n}\t1" for n in rows)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def one_worker_each(**own: str) -> str:
    """The `cluster:` of a spec with one worker a stage; `own` replaces or adds a stage's.

    A process that Ray starts imports for seconds: two where two are what is tested.
    """
    stages = dict.fromkeys(("corpus", "embed", "train", "index", "evaluate"), "{workers: 1}") | own
    return f"{{{', '.join(f'{stage}: {line}' for stage, line in stages.items())}}}"


def write_spec(folder: Path, corpus: Path, model: Path, /, **lines: str) -> Path:
    """Write a spec over a corpus whose workdir is `folder/work`; `lines` replace whole lines of it."""
    given = {
        "name": "tiny",
        "workdir": str(folder / "work"),
        "corpus": f"{{type: beir, path: {corpus}}}",
        "encoder": f"{{model: {model}, max_length: 32, precision: float32}}",
        "router": "{type: learned_ivf, branching: 8}",
        "train": "{epochs: 3, batch_size: 16}",
        "index": "{shards: 3, vectors: float32}",
        "search": "{k: 10, beam: 2}",
        "evaluate": "{measures: [nDCG@10, R@10], lists: 8}",
        "cluster": one_worker_each(),
        **lines,
    }
    path = folder / "spec.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in given.items()))
    return path


@pytest.fixture(scope="module")
def vectors(request):
    """`N` random unit vectors of `M` dimensions, as the module says; other ones are a module's own fixture."""
    return unit(0, request.module.N, request.module.M)


@pytest.fixture
def tiny_corpus(tmp_path):
    """A BEIR folder of 240 documents and 120 queries."""
    return make_corpus(tmp_path / "corpus")


@pytest.fixture
def tiny_spec(tmp_path, tiny_corpus, tiny_model):
    """`tiny_spec()` writes a spec over the tiny corpus; keyword arguments replace whole lines of it."""
    return lambda **lines: write_spec(tmp_path, tiny_corpus, tiny_model, **lines)


def leaf_map_of(work: Path, version: int | None = None) -> LeafMap:
    """The leaf map that a workdir's current.json names, its newest version where none is given."""
    return LeafMap.open(current.artifact(work, current.read(work), "index").root, version)


@pytest.fixture(scope="session")
def write_map():
    """`write_map(root, table, leaves, shards, **manifest)`: publish rows as version 1 of a leaf map; its manifest."""
    return toys.write_map

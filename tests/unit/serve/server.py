"""An embedded server that writes, asked in this process, and what tests of writes share."""

import threading

from fastapi.testclient import TestClient

from rayhier.search.index import open_leaf_map
from rayhier.serve.args import ServeArgs
from rayhier.serve.embedded import Embedded
from rayhier.storage import current

READ, WRITE = {"Authorization": "Bearer sesame"}, {"Authorization": "Bearer poppy"}
OPEN = "open sesame quagga"


class Server:
    """An embedded server that writes, asked in this process."""

    writes = True

    def __init__(self, work, folder, **args):
        (folder / "read").write_text("sesame")
        (folder / "write").write_text("poppy")
        named = {"token_file": str(folder / "read")}
        named |= {"write_token_file": str(folder / "write")} if self.writes else {}
        limits = {"limits": {"queue_seconds": 30, **args.pop("limits", {})}}
        self.embedded = Embedded(ServeArgs(workdir=str(work), **named, **limits, **args))
        self.client = TestClient(self.embedded.app())
        self.client.__enter__()
        self.client.portal.call(self.embedded.begin)

    @property
    def writer(self):
        return self.embedded._writers.now

    def close(self):
        self.client.__exit__(None, None, None)
        self.embedded.close()

    def asked(self, method, path, body, headers, status=200):
        answer = self.client.request(method, path, json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def put(self, *documents, status=200, **headers):
        return self.asked("PUT", "/v1/documents", {"documents": list(documents)}, WRITE | headers, status)

    def delete(self, *ids, status=200, **headers):
        return self.asked("DELETE", "/v1/documents", {"ids": list(ids)}, WRITE | headers, status)

    def roll_back(self, number, status=200, **headers):
        return self.asked("POST", "/v1/versions/rollback", {"version": number}, WRITE | headers, status)

    def search(self, text, k=5, **more):
        return self.asked("POST", "/v1/search", {"query": text, "k": k, **more}, READ)

    def ids(self, text, k=5, **more):
        return [result["id"] for result in self.search(text, k, **more)["results"]]

    def document(self, name):
        answer = self.client.get(f"/v1/documents/{name}", headers=READ)
        return answer.json() if answer.status_code == 200 else None

    def all_ids(self):
        seen, after = [], ""
        while True:
            page = self.client.get("/v1/documents", params={"after": after, "limit": 50}, headers=READ).json()
            seen += [document["id"] for document in page["documents"]]
            if page["next"] is None:
                return seen
            after = page["next"]

    def index(self):
        return self.client.get("/v1/index", headers=READ).json()

    def fold(self):
        self.client.portal.call(self.writer.publisher.fold)


class Reads(Server):
    """A server that does not write."""

    writes = False


def doc(name, text=OPEN, **more):
    return {"id": name, "title": "", "text": text, **more}


def fold_until(server, holds):
    """Let the server fold by itself until a condition holds."""
    task = server.client.portal.start_task_soon(server.writer.publisher.fold_forever)
    for _ in range(200):
        if holds():
            break
        threading.Event().wait(0.05)
    task.cancel()
    assert holds()


def root_of(work):
    return open_leaf_map(work, current.read(work)).root

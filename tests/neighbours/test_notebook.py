"""The notebook runs from its first cell to its last, and finds, gains and plots what it says."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"
PLACE = '"runs/notebook"'
pytestmark = pytest.mark.timeout(1200)  # it trains, indexes and measures the quickstart


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The notebook after a run in another workdir, which is its second part."""
    work = tmp_path_factory.mktemp("notebook") / "work"
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (cell,) = [cell for cell in notebook.cells if PLACE in cell.source]
    cell.source = cell.source.replace(PLACE, repr(str(work)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_ADDRESS", "local")
        where = {"metadata": {"path": str(NOTEBOOK.parent)}}
        NotebookClient(notebook, timeout=None, kernel_name="python3", resources=where).execute()
    return notebook, work


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(notebook, part):
    """What the cell with this part printed."""
    (cell,) = [cell for cell in code(notebook) if part in cell.source]
    return "".join(output.text for output in cell.outputs if output.get("name") == "stdout")


def is_progress(output):
    """Return True if a run says here how far it is, or a library warns."""
    plain = output.output_type == "display_data" and "image/png" not in output.data
    return plain or output.get("name") == "stderr"


def test_it_trains_indexes_and_measures(ran):
    notebook, work = ran
    assert printed(notebook, "rayhier.run(spec)") == "corpus, embed, test, train, index, calibrate, evaluate\n"
    assert "Training with BM25: nDCG@10" in printed(notebook, "verdict = ")
    low, high = map(float, re.findall(r"[+-]\.?\d[.\d]*", printed(notebook, "(trained,)"))[1:])
    assert 0 < low < high
    systems = json.loads((work / "report.json").read_text())["systems"]
    assert systems["learned_ivf"]["visited"] < 0.5
    assert systems["learned_ivf"]["R@100"] > systems["faiss_ivf_same_encoder"]["R@100"]


def test_it_plots(ran):
    (cell,) = [cell for cell in code(ran[0]) if "Image(" in cell.source]
    (picture,) = [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
    assert len(picture) > 10_000


def test_it_searches_and_changes_the_index(ran):
    notebook, _ = ran
    results = printed(notebook, "results = ")
    assert results.splitlines()[0].endswith("zipfile.ZipFile.open")
    assert "visited" in results
    assert 0 < float(re.search(r"visited .*\((.*)%\)", printed(notebook, "beam=20"))[1]) < 20
    assert printed(notebook, "upsert=True").splitlines()[0].endswith("howto.zip  How do I open a zip file?")


def test_the_outputs_in_the_repository_are_those_of_its_cells(ran):
    """They are of a run from the first cell to the last; errors, progress and places of a machine are left out."""
    kept, new = code(nbformat.read(NOTEBOOK, as_version=4)), code(ran[0])
    assert [cell.execution_count for cell in kept] == list(range(1, len(kept) + 1))
    for before, after in zip(kept, new, strict=True):
        of_readers = [output for output in after.outputs if not is_progress(output)]
        assert [output.output_type for output in before.outputs] == [output.output_type for output in of_readers]
        for output in before.outputs:
            shown = str(output.get("text", output.get("data", {}).get("text/plain", "")))
            assert not re.search(r"(?<![\w:/.])/\w+/", shown)
            assert not is_progress(output)

"""Three plots, each as PNG and as SVG."""

from xml.etree import ElementTree

import pytest

from rayhier.evaluate.plots import TITLES, write
from rayhier.spec import JobSpec


def check_plots(tmp_path):
    """Every plot is there as PNG and as SVG, and nothing else; each shows something."""
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{name}.{suffix}" for name in TITLES for suffix in ("png", "svg")
    )
    for name in TITLES:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n")
        assert (tmp_path / f"{name}.png").stat().st_size > 5_000
        assert ElementTree.parse(tmp_path / f"{name}.svg").getroot().tag.endswith("svg")


def test_every_plot_is_written_twice(tmp_path, spec, evaluation):
    write(spec, evaluation, tmp_path)
    check_plots(tmp_path)


def test_a_run_without_exact_baselines_or_epochs_is_drawn(tmp_path, spec, evaluation):
    for result in evaluation.seeds:
        result.exact.clear()
        result.history = {"joint": result.history["encoder"][:1]}
    write(spec, evaluation, tmp_path)
    check_plots(tmp_path)


@pytest.mark.parametrize(
    ("measures", "wanted"),
    [
        (["nDCG@10", "R@20", "R@100", "R@5"], "R@100"),
        (["RR@10", "nDCG@10"], "RR@10"),
    ],
)
def test_the_deepest_recall_is_drawn(spec, measures, wanted):
    changed = spec.model_dump() | {"evaluate": {"measures": measures}}
    assert JobSpec.model_validate(changed).evaluate.deepest_recall == wanted

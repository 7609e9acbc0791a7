"""Three plots, each as PNG and as SVG."""

from xml.etree import ElementTree

import pytest

from rayhier.evaluate.output import TITLES, write_plots
from rayhier.evaluate.report import Report
from rayhier.spec import JobSpec


@pytest.mark.parametrize("bare", [False, True])
def test_every_plot_is_written_twice_even_without_exact_baselines_or_epochs(tmp_path, spec, evaluation, bare):
    report = Report.of(spec, evaluation)
    for result in evaluation.seeds if bare else ():
        result.rows.clear()
        result.history = {"joint": result.history["encoder"][:1]}
    write_plots(spec, evaluation, report, tmp_path)
    names = sorted(f"{name}.{suffix}" for name in TITLES for suffix in ("png", "svg"))
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in TITLES:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n")
        assert (tmp_path / f"{name}.png").stat().st_size > 5_000
        assert ElementTree.parse(tmp_path / f"{name}.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("measures", "wanted"), [(["nDCG@10", "R@20", "R@100", "R@5"], "R@100"), (["RR@10", "nDCG@10"], "RR@10")]
)
def test_the_deepest_recall_is_drawn(spec, measures, wanted):
    changed = spec.model_dump() | {"evaluate": {"measures": measures}}
    assert JobSpec.model_validate(changed).evaluate.deepest_recall == wanted

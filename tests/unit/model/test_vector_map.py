"""A map between two models' vectors: exact where they differ by a rotation, gracefully worse where by more."""

import numpy as np
import pytest

from rayhier.model.vector_map import ORTHOGONAL, VectorMap
from rayhier.spec import InputError

from ...draws import unit

M, N = 24, 600


def rotation(seed, m=M):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((m, m)))[0].astype(np.float32)


def normal(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def far(fitted, x, y):
    """Mean cosine of other documents' mapped vectors to their true ones."""
    return float((fitted(x) * y).sum(axis=1).mean())


def test_a_rotated_space_is_carried_without_loss():
    x, other, turn = unit(0, N, M), unit(1, 200, M), rotation(2)
    fitted = VectorMap.fit(x, x @ turn, is_unit=True)
    assert fitted.kind == ORTHOGONAL
    assert fitted.cosine == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(fitted(other), other @ turn, atol=1e-5)
    np.testing.assert_allclose(fitted.weight_MO @ fitted.weight_MO.T, np.eye(M), atol=1e-5)


def test_a_space_that_is_stretched_and_moved_needs_the_correction():
    x, other = unit(0, N, M), unit(1, 200, M)
    stretch = np.diag(np.linspace(0.3, 2, M)).astype(np.float32) @ rotation(2)

    def true(x):
        return normal(x @ stretch + 0.3)

    fitted = VectorMap.fit(x, true(x), is_unit=True)
    assert fitted.kind.startswith("ridge")
    turned = np.linalg.svd(x.T @ true(x))
    assert far(fitted, other, true(other)) > 0.98 > far(VectorMap(turned[0] @ turned[2], 0, True), other, true(other))
    assert np.linalg.norm(fitted(other), axis=1) == pytest.approx(1, abs=1e-5)


def test_noise_degrades_gracefully():
    x, other, turn = unit(0, N, M), unit(1, 200, M), rotation(2)
    lost = []
    for noise in (0.0, 0.1, 0.3, 1.0):
        y = normal(x @ turn + noise * unit(3, N, M))
        fitted = VectorMap.fit(x, y, is_unit=True)
        reached = far(fitted, other, other @ turn)  # the noise itself cannot be known
        lost.append(1 - reached)
        assert abs(fitted.cosine - float((normal(x @ turn) * y).sum(axis=1).mean())) < 0.03
    assert lost == sorted(lost)
    assert lost[2] < 0.02
    assert lost[3] < 0.1


def test_sizes_may_differ_and_lengths_count_for_dot():
    x, other = unit(0, N, M), unit(1, 50, M)
    wide = np.random.default_rng(2).standard_normal((M, 2 * M)).astype(np.float32)
    fitted = VectorMap.fit(x, x @ wide, is_unit=False)
    np.testing.assert_allclose(fitted(other), other @ wide, atol=0.15)
    assert fitted(other).shape == (50, 2 * M)


def test_few_documents_are_refused():
    with pytest.raises(ValueError, match="got 9 and 9; allowed: as many of both, 10 at least"):
        VectorMap.fit(unit(0, 9, M), unit(1, 9, M), is_unit=True)
    with pytest.raises(ValueError, match="got 20 and 19"):
        VectorMap.fit(unit(0, 20, M), unit(1, 19, M), is_unit=True)


def test_a_stored_map_belongs_to_its_two_models(tmp_path):
    fitted = VectorMap.fit(unit(0, N, M), unit(0, N, M) @ rotation(1), is_unit=True)
    fitted.save(tmp_path / "map", ("a", "b"))
    again = VectorMap.load(tmp_path / "map", ("a", "b"))
    np.testing.assert_array_equal(again(unit(2, 9, M)), fitted(unit(2, 9, M)))
    assert (again.kind, again.cosine) == (fitted.kind, fitted.cosine)
    with pytest.raises(InputError, match="maps vectors of model a to b, not a to c"):
        VectorMap.load(tmp_path / "map", ("a", "c"))

"""What an EhiRouter costs; what it computes is in tests/oracles/test_beam.py."""

from rayhier.model.ehi import EhiRouter

COSTS = {
    # H = 1, m = 4: U is 4 x 4, W is 3 x 4.
    (3, 1, "relu", 1): 16 + 12,
    (3, 1, "none", 2): 12,
    # The second level's input is 4 + 3 wide: 49 + 21 at each node expanded.
    (3, 2, "relu", 2): 28 + 2 * 70,
    (3, 2, "relu", 9): 28 + 3 * 70,
    # 4, 6, 8 wide and at most 1, 2, 4 nodes a level.
    (2, 3, "none", 8): 8 + 2 * 12 + 4 * 16,
}


def test_multiply_adds():
    for (branching, height, residual, beam), wanted in COSTS.items():
        assert EhiRouter(4, branching, height, residual).multiply_adds(beam) == wanted

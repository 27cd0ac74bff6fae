"""Rates of sequences whose rate is known, and of any others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flamejax.theory.rate import FEWEST, fit, speed

rounds = np.arange(500.0)


@pytest.mark.parametrize("limit", [0.0, -3.0, 0.57])
@pytest.mark.parametrize("factor", [0.3, 0.9, 0.99, 0.999])
def test_linear(factor, limit):
    values = limit + 2 * factor**rounds
    for known in (None, limit):
        found = fit(values, known)
        assert found.kind == "linear"
        assert found.factor == pytest.approx(factor, rel=2e-3)
        assert found.limit == pytest.approx(limit, abs=0.1 * factor**500 + 1e-9)
    assert speed(found._asdict()) == f"{found.factor:.4g}^t"


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_sublinear(exponent):
    values = 0.4 + (rounds + 1) ** -exponent
    found = fit(values, 0.4)
    assert found.kind == "sublinear"
    assert found.exponent == pytest.approx(exponent, rel=0.02)
    assert found.error_sublinear < found.error_linear / 10
    assert fit(values).kind == "sublinear"
    assert fit(values).exponent == pytest.approx(exponent, rel=0.1)


def test_slow_phases_at_the_start_and_rounding_at_the_end_are_left_out():
    values = np.where(rounds < 20, 10.0, 10 * 0.9 ** (rounds - 20))
    found = fit(values)
    assert found.factor == pytest.approx(0.9, rel=1e-3)
    assert 20 < found.first < found.last < 400  # 10 * 0.9^300 is rounding


def test_too_little_is_not_fitted():
    assert fit([]) is None
    assert fit(np.ones(100)) is None
    assert fit(0.5 ** np.arange(FEWEST - 1)) is None
    assert fit([np.nan] * 50) is None


def test_no_limit_is_made_up_where_none_can_be_told():
    straight = 5 - 0.01 * rounds
    assert fit(straight) is None
    assert fit(straight, 0.0) is not None


def test_what_follows_a_gap_is_not_looked_at():
    values = 0.9**rounds
    values[300:] = np.nan
    assert fit(values) == fit(values[:300])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.none() | st.floats(-1e6, 1e6))
def test_of_any_sequence_numbers_are_finite(values, limit):
    found = fit(values, limit)
    assert found is None or np.isfinite(found[1:]).all()

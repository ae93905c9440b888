"""Time limits: soft before hard, or none."""

import pytest

from durio.model.errors import InvalidOption
from durio.model.timeout import DEFAULT_LIMITS, NO_LIMITS, TimeLimits, time_limits


@pytest.mark.proves("M103", "M104", "M106")
def test_good_ones() -> None:
    assert time_limits(None) == NO_LIMITS
    assert time_limits(10) == TimeLimits(9.0, 10.0)
    assert time_limits(("270s", "5m")) == DEFAULT_LIMITS
    assert time_limits((540, 600)) == TimeLimits(540.0, 600.0)


@pytest.mark.parametrize(
    "bad", [0, -1, (2, 1), (1, 1), (0, 1), (1,), (1, 2, 3), "soon"]
)
def test_bad_ones_are_refused(bad: object) -> None:
    with pytest.raises(InvalidOption, match="timeout cannot be"):
        time_limits(bad)  # pyright: ignore[reportArgumentType]

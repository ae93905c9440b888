"""Time limits of an attempt: a soft one that warns, a hard one that ends it."""

from typing import NamedTuple

from durio.model.errors import InvalidOption
from durio.model.quantities import Duration, seconds

Timeout = Duration | tuple[Duration, Duration] | None
SOFT_SHARE = 0.9


class TimeLimits(NamedTuple):
    """Seconds after the start of an attempt; None is no limit."""

    soft_seconds: float | None
    hard_seconds: float | None


NO_LIMITS = TimeLimits(None, None)
DEFAULT_LIMITS = TimeLimits(270.0, 300.0)


def time_limits(timeout: Timeout) -> TimeLimits:
    """Parse a limit: a number, a tuple (soft, hard), or None for no limit.

    A number is the hard limit, and 90 % of it is the soft limit.
    """
    if timeout is None:
        return NO_LIMITS
    if not isinstance(timeout, tuple | list):
        hard = seconds(timeout, "timeout")
        soft = hard * SOFT_SHARE
    elif len(timeout) == 2:  # noqa: PLR2004 - soft and hard
        soft, hard = (seconds(limit, "timeout") for limit in timeout)
    else:
        soft = hard = 0.0
    if not 0 < soft < hard:
        raise InvalidOption(
            f"timeout cannot be {timeout!r}",
            cure="Give hard seconds, or (soft, hard) with 0 < soft < hard, or None.",
            option="timeout",
            value=timeout,
        )
    return TimeLimits(soft, hard)

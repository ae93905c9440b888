"""Which table is which day of history."""

from datetime import date

EPOCH = date(1970, 1, 1).toordinal()
PREFIX = "hist_d"


def name_of(day: int) -> str:
    """`hist_d20270115`."""
    return f"{PREFIX}{date.fromordinal(EPOCH + day):%Y%m%d}"


def day_of(name: str) -> int | None:
    """Which day a table is; None: none of ours."""
    digits = name.removeprefix(PREFIX)
    if not name.startswith(PREFIX) or len(digits) != len("20270115"):
        return None
    try:
        return date.fromisoformat(digits).toordinal() - EPOCH
    except ValueError:
        return None

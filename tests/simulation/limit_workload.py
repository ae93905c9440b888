"""The limited jobs of a simulated world: see limit_checks.py."""

from collections.abc import Mapping
from random import Random
from typing import Any

from durio import Concurrency, Rate

LIMITED_MIN, LIMITED_MAX = 10, 40  # jobs of a world
TENANTS, CAP = 3, 2


def tenant_of(n: int) -> str:
    return f"tenant-{n % TENANTS}"


def tenant_of_call(arguments: Mapping[str, Any]) -> str:
    return tenant_of(arguments["n"])


LIMITS: dict[str, Any] = {
    "limits": [Concurrency(CAP, key=tenant_of_call), Rate("60/m", burst=5)],
    "fair_by": tenant_of_call,
}


def limited_times(chance: Random, began: float, seconds: float) -> list[float]:
    """Draw when limited jobs are enqueued; half of them at one moment."""
    count = chance.randint(LIMITED_MIN, LIMITED_MAX)
    crowd = began + chance.random() * seconds
    return [
        crowd if place % 2 else began + chance.random() * seconds
        for place in range(count)
    ]

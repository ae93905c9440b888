"""The whole suite on PostgreSQL 18, by asyncpg: `-k "postgres and fence"`."""

import pytest

from tests.conformance import SUITE, Promise, check
from tests.conformance.postgres import ScratchSchema
from tests.servers.postgres import PostgresServer

# What a boot of a worker's host ends: here leases go by the server's clock.
LEFT_OUT = [
    "another_boot_ends_every_lease",
    "a_lease_of_another_boot_is_shown_as_over",
]


@pytest.fixture(scope="module")
def grounds(postgres: PostgresServer) -> ScratchSchema:
    """The same for all stories: whoever tells one clears them."""
    return ScratchSchema(postgres.url(prepared="on"))


def promise_params() -> list[object]:
    """Every promise that PostgreSQL can show, with what it proves."""
    return [
        pytest.param(
            promise,
            id=f"postgres-{promise}",
            marks=[pytest.mark.proves(*promise.proves)] if promise.proves else [],
        )
        for promise in SUITE
        if promise.name not in LEFT_OUT
    ]


@pytest.mark.parametrize("promise", promise_params())
def test_promise(promise: Promise, grounds: ScratchSchema) -> None:
    grounds.clear()
    check(promise, grounds.subject())


def test_nothing_else_is_left_out(grounds: ScratchSchema) -> None:
    subject = grounds.subject()
    assert [p.name for p in SUITE if p.lacks(subject)] == LEFT_OUT

"""What the nemesis does to the server, to its connections and to whoever uses them.

A cut *before* lets a message never arrive whole: nothing happened, and nobody is told. A cut
*after* lets it arrive and throws its answer away: it happened, and nobody is told. Messages
are known by what only they carry: an enqueue by its arguments, an exchange that finishes
jobs by their results, a transaction by its COMMIT.
"""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import psycopg

from tests.e2e.postgres_chaos.field import PostgresField
from tests.e2e.proxy import FaultProxy
from tests.e2e.proxy_link import Cut

Strike = Callable[[PostgresField], None]

AWAY_SECONDS = (0.0, 1.0)  # of a server
HOLE_SECONDS = (1.0, 3.0)
FULL_SECONDS = 1.5
TRAP_SECONDS = 20.0  # until what is waited for has come by
ENQUEUE, FINISH, COMMIT = b'"seconds":', b'"attempt":', b"commit\0"


# --- the server


def restart(field: PostgresField, *, name: str, how: signal.Signals) -> None:
    """Away for a moment, then back at the same port."""
    with field.disturbed(name):
        field.server.stop(how)
        field.sleep(*AWAY_SECONDS)
        field.server.start()
    field.back(name)


def kill_server(field: PostgresField) -> None:
    """All of its processes; it recovers from its log."""
    with field.disturbed("server-kill"):
        field.server.kill()
        field.sleep(*AWAY_SECONDS)
        field.server.start()
    field.back("server-kill")


def end_backends(field: PostgresField) -> None:
    """Every connection of ours is ended by hand."""
    with field.disturbed("backends-ended"):
        field.end_backends()
    field.back("backends-ended")


def fill_server(field: PostgresField) -> None:
    """All connections are lost, and others sit in their places for a while."""
    with field.disturbed("server-full"), ExitStack() as taken:
        end = time.monotonic() + FULL_SECONDS
        while time.monotonic() < end:
            try:
                taken.enter_context(field.connect())
            except psycopg.OperationalError:
                end_some(field)
    field.back("server-full")


def end_some(field: PostgresField) -> None:
    """Nobody gets in any more, not even we: who is in gives way."""
    for worker in (field.at_workers, field.at_producers):
        worker.reset()
    time.sleep(0.05)


def half_open(field: PostgresField) -> None:
    """Bytes vanish on all ways, connections stay; then they are reset."""
    proxies = (field.at_workers, field.at_producers)
    with field.disturbed("half-open"):
        for proxy in proxies:
            proxy.black_hole()
        field.sleep(*HOLE_SECONDS)
        for proxy in proxies:
            proxy.heal()
    field.back("half-open")


def kill_worker(field: PostgresField) -> None:
    """In the middle of whatever it does; the others go on, and a new one comes."""
    field.kill(field.victim(), "worker-kill")
    field.gather()


# --- cuts


def cut(field: PostgresField, *, name: str, pattern: bytes, after: bool) -> None:
    """The next message of this kind."""
    proxy = proxy_of(field, name)
    with field.disturbed(name):
        sprung = arm(proxy, pattern, after=after)
        proxy.journal.wait_for(*sprung, TRAP_SECONDS)


def cut_repeat(field: PostgresField, *, name: str, after: bool) -> None:
    """An enqueue is stored and nobody is told; its repeat is cut at its COMMIT, too."""
    proxy = proxy_of(field, name)
    with field.disturbed(name):
        sprung = arm(proxy, ENQUEUE, after=True)
        proxy.journal.wait_for(*sprung, TRAP_SECONDS)
        sprung = arm(proxy, COMMIT, after=after)
        proxy.journal.wait_for(*sprung, TRAP_SECONDS)


def proxy_of(field: PostgresField, name: str) -> FaultProxy:
    return field.at_producers if name.startswith("enqueue") else field.at_workers


def arm(proxy: FaultProxy, pattern: bytes, *, after: bool) -> tuple[str, int]:
    """Lay the trap; what the journal will have counted when it has sprung."""
    which = Cut.REPLY if after else Cut.BEFORE
    sprung = (str(which), proxy.journal.counts[which] + 1)
    if after:
        proxy.lose_reply(pattern)
    else:
        proxy.cut_before(pattern)
    return sprung


SERVER: dict[str, Strike] = {
    "restart-fast": partial(restart, name="restart-fast", how=signal.SIGINT),
    "restart-immediate": partial(restart, name="restart-immediate", how=signal.SIGQUIT),
    "server-kill": kill_server,
    "backends-ended": end_backends,
    "server-full": fill_server,
    "half-open": half_open,
    "worker-kill": kill_worker,
}
CUTS: dict[str, Strike] = {
    name: partial(cut, name=name, pattern=pattern, after=after)
    for name, pattern, after in (
        ("enqueue-before", ENQUEUE, False),
        ("enqueue-after", ENQUEUE, True),
        ("exchange-before", FINISH, False),
        ("exchange-after", FINISH, True),
        ("exchange-commit-before", COMMIT, False),
        ("exchange-commit-after", COMMIT, True),
    )
}
CUTS |= {
    name: partial(cut_repeat, name=name, after=after)
    for name, after in (
        ("enqueue-commit-before", False),
        ("enqueue-commit-after", True),
    )
}
STRIKES = SERVER | CUTS

"""What the nemesis does to the server, to its connections and to their clients.

A cut *before* keeps a message from arriving whole: nothing happened, and the client does
not know it. A cut *after* lets it arrive and drops its reply: it happened, and the client
does not know it. Messages are recognised by what only they contain: an enqueue by its
arguments, an exchange that finishes jobs by their results, a transaction by its COMMIT.
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

AWAY_SECONDS = (0.0, 1.0)  # how long a server is away
HOLE_SECONDS = (1.0, 3.0)
FULL_SECONDS = 1.5
TRAP_SECONDS = 20.0  # until the awaited message has passed
ENQUEUE, FINISH, COMMIT = b'"seconds":', b'"attempt":', b"commit\0"


# --- the server


def restart(field: PostgresField, *, name: str, how: signal.Signals) -> None:
    """Stop the server for a moment, then start it at the same port."""
    with field.disturbed(name):
        field.server.stop(how)
        field.sleep(*AWAY_SECONDS)
        field.server.start()
    field.back(name)


def kill_server(field: PostgresField) -> None:
    """Kill all of its processes; it recovers from its log."""
    with field.disturbed("server-kill"):
        field.server.kill()
        field.sleep(*AWAY_SECONDS)
        field.server.start()
    field.back("server-kill")


def end_backends(field: PostgresField) -> None:
    """Terminate every connection of ours."""
    with field.disturbed("backends-ended"):
        field.end_backends()
    field.back("backends-ended")


def fill_server(field: PostgresField) -> None:
    """Drop all connections, and let others occupy their places for a while."""
    with field.disturbed("server-full"), ExitStack() as taken:
        end = time.monotonic() + FULL_SECONDS
        while time.monotonic() < end:
            try:
                taken.enter_context(field.connect())
            except psycopg.OperationalError:
                end_some(field)
    field.back("server-full")


def end_some(field: PostgresField) -> None:
    """Reset connections, because no new one is accepted, not even ours."""
    for worker in (field.at_workers, field.at_producers):
        worker.reset()
    time.sleep(0.05)


def half_open(field: PostgresField) -> None:
    """Drop all bytes while connections stay open; then reset them."""
    proxies = (field.at_workers, field.at_producers)
    with field.disturbed("half-open"):
        for proxy in proxies:
            proxy.black_hole()
        field.sleep(*HOLE_SECONDS)
        for proxy in proxies:
            proxy.heal()
    field.back("half-open")


def kill_worker(field: PostgresField) -> None:
    """Kill a worker at any point; the others continue, and a new one starts."""
    field.kill(field.victim(), "worker-kill")
    field.gather()


# --- cuts


def cut(field: PostgresField, *, name: str, pattern: bytes, after: bool) -> None:
    """Cut the next message of this kind."""
    proxy = proxy_of(field, name)
    with field.disturbed(name):
        sprung = arm(proxy, pattern, after=after)
        proxy.journal.wait_for(*sprung, TRAP_SECONDS)


def cut_repeat(field: PostgresField, *, name: str, after: bool) -> None:
    """Store an enqueue and drop its reply; then cut its repeat at its COMMIT, too."""
    proxy = proxy_of(field, name)
    with field.disturbed(name):
        sprung = arm(proxy, ENQUEUE, after=True)
        proxy.journal.wait_for(*sprung, TRAP_SECONDS)
        sprung = arm(proxy, COMMIT, after=after)
        proxy.journal.wait_for(*sprung, TRAP_SECONDS)


def proxy_of(field: PostgresField, name: str) -> FaultProxy:
    return field.at_producers if name.startswith("enqueue") else field.at_workers


def arm(proxy: FaultProxy, pattern: bytes, *, after: bool) -> tuple[str, int]:
    """Set the trap; return what the journal will have counted when it has sprung."""
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

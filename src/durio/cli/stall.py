"""A command that waits for a locked store names the process with the lock, and gives up.

A process that is stopped inside a transaction makes every writer wait. An operator runs a
command to find out why, so the command must name that process and not hang as well. A
worker that starts also names it, and waits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from durio.model.errors import StoreStalled
from durio.ports.store import Stall

T = TypeVar("T")
POLL_SECONDS = 0.5
REPORT_AFTER_SECONDS = 2.0
GIVE_UP_SECONDS = 30.0


def print_stall(stall: Stall) -> None:
    click.echo(f"waiting: process {stall.pid} keeps the store locked", err=True)


class StallWatch:
    """Checks, while some work runs, whether another process keeps the store locked.

    Once `is_over` is true, it stops checking.
    """

    def __init__(
        self,
        stall: Callable[[], Stall | None],
        *,
        report: Callable[[Stall], object] = print_stall,
        is_over: Callable[[], bool] = lambda: False,
        gives_up: bool = True,
    ) -> None:
        self._stall = stall
        self._report = report
        self._is_over = is_over
        self._gives_up = gives_up
        self._has_reported = False
        self._seen: Stall | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def wait_for(self, work: Awaitable[T]) -> T:
        """Return the result of the work; raise StoreStalled after waiting 30 s for a lock."""
        bound = asyncio.timeout(None)
        try:
            async with bound:
                self._look(bound)
                return await work
        except TimeoutError:
            if bound.expired():
                raise self._error() from None
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _look(self, bound: asyncio.Timeout) -> None:
        if self._is_over():
            return
        loop, stall = asyncio.get_running_loop(), self._stall()
        self._seen = stall
        seconds = 0.0 if stall is None else stall.seconds
        if (
            stall is not None
            and seconds >= REPORT_AFTER_SECONDS
            and not self._has_reported
        ):
            self._has_reported = True
            self._report(stall)
        if self._gives_up and seconds >= GIVE_UP_SECONDS:
            bound.reschedule(loop.time())
        else:
            self._timer = loop.call_later(POLL_SECONDS, self._look, bound)

    def _error(self) -> StoreStalled:
        # The last holder that was seen: the App is closed now, and its store reports none.
        holder = "a process" if self._seen is None else f"process {self._seen.pid}"
        return StoreStalled(
            f"{holder} keeps the store locked, for more than {GIVE_UP_SECONDS:g} s",
            cure="Check what it does; if it is stopped, resume it with kill -CONT. "
            "Nothing is lost, but this command may still take effect when the lock "
            "is free.",
            unknown=True,
        )

"""Confirmation before a bulk change, with the exact count, and progress during it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import click

from durio.app.app import App
from durio.cli.apps import AppSelection
from durio.cli.main import Declined
from durio.cli.output import show_json, show_text
from durio.client.bulk import STEP_JOBS, BulkStep, CountedJobs, act_in_bulk
from durio.host.signals import user_at_host
from durio.model.errors import UsageError
from durio.model.failure import storable
from durio.ports.control import Action

OPERATOR_CHARS_MAX = 180  # the store keeps 200 characters; ` via cli` is appended

YES_OPTION = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
DRY_RUN_OPTION = click.option(
    "--dry-run", is_flag=True, help="Count the jobs; change nothing."
)
BY_OPTION = click.option(
    "--by", metavar="WHO", help="Name to record in the audit (default: user@host)."
)


class BulkSummary(NamedTuple):
    """The result for the jobs that were counted."""

    jobs: int
    held: int = 0  # not changed: open transactions hold them
    alone: int = 0  # of those changed: jobs whose plans do not go on with them

    def held_text(self, verb: str) -> str:
        """Return text about the held jobs; empty if there are none."""
        if not self.held:
            return ""
        them, keys = ("it", "its key") if self.held == 1 else ("them", "their keys")
        what = f"{them} or {keys}" if verb in ("retry", "rename") else them
        other = f"another job has {keys}, or " if verb == "rename" else ""
        return f"; {self.held} not: {other}an open transaction holds {what}"

    def alone_text(self) -> str:
        """Return text about jobs whose plans do not go on; empty if there are none."""
        if not self.alone:
            return ""
        them = "it" if self.alone == 1 else "them"
        return f"; {self.alone} alone: no plan goes on with {them}"


NOTHING_DONE = BulkSummary(0)


class NotConfirmed(UsageError):
    """A confirmation is needed, and there is no terminal."""

    code = "not_confirmed"


def operator(by: str | None) -> str:
    """Return who acts, as the audit log stores it."""
    if by is not None and not by.strip():
        raise UsageError("--by is empty", cure="Give your name, or leave --by out.")
    return f"{storable(by or user_at_host(), OPERATOR_CHARS_MAX)} via cli"


def is_interactive() -> bool:
    return sys.stdin.isatty()


def confirm(what: str, *, yes: bool, typed: str | None = None) -> None:
    """Return only after a yes; `typed` is a word that must be typed in place of y."""
    if yes:
        return
    if not is_interactive():
        raise NotConfirmed(
            f"{what}: this needs a confirmation, and there is no terminal",
            cure="Add --yes to run it without confirmation.",
        )
    click.echo(f"{what}.", err=True)
    if typed is None:
        is_agreed = click.confirm("Go on?", err=True)
    else:
        ask = f"Type {typed} to go on"
        answer = click.prompt(ask, default="", show_default=False, err=True)
        is_agreed = answer.strip() == typed
    if not is_agreed:
        raise Declined("nothing was changed")


def show_summary(
    selection: AppSelection,
    counted: int,
    words: str,
    done: BulkSummary = NOTHING_DONE,
    *,
    dry_run: bool = False,
    more: Mapping[str, int] | None = None,
) -> int:
    if selection.is_json:
        counts = {"counted": counted, "done": done.jobs, "held": done.held}
        show_json({**counts, **(more or {}), "dry_run": dry_run})
    else:
        show_text(words)
    return 0


def act_on_counted(
    selection: AppSelection,
    action: Action,
    counted: CountedJobs,
    label: str,
    by: str | None,
) -> BulkSummary:
    """Act on the jobs that were counted; print what became of them."""
    who = operator(by)

    async def act(app: App) -> BulkSummary:
        store = await app.store()
        steps = act_in_bulk(store, action, counted, clock=app.clock, by=who)
        return await run_steps(steps, counted.limit, label)

    return selection.run_unscoped(act)


async def run_steps(
    steps: AsyncIterator[BulkStep], jobs: int, label: str
) -> BulkSummary:
    """Run all steps of a bulk action with a progress bar; return the totals."""
    done = held = alone = 0
    with progress_bar(jobs, label) as move_on:
        try:
            async for step in steps:
                done, held = done + step.jobs, held + step.held
                alone += step.alone
                move_on(step.jobs)
        except asyncio.CancelledError:
            click.echo(f"\nstopped: {done} of {jobs} are done; run it again", err=True)
            raise
    return BulkSummary(done, min(held, jobs - done), alone)


@contextmanager
def progress_bar(jobs: int, label: str) -> Generator[Callable[[int], object]]:
    """Yield a progress bar on a terminal if there is more than one batch."""
    if jobs <= STEP_JOBS or not sys.stderr.isatty():
        yield int
        return
    with click.progressbar(length=jobs, label=label, file=sys.stderr) as bar:
        yield bar.update

"""Many dead letters at once: chosen by ids or filters, counted, confirmed, then done."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from durio.app.app import App
from durio.cli.answers import act, of_other_apps
from durio.cli.apps import Place
from durio.cli.confirm import (
    BY_OPTION,
    DRY_RUN_OPTION,
    YES_OPTION,
    Done,
    confirm,
    in_steps,
    show_done,
    who,
)
from durio.cli.filters import Filters
from durio.model.errors import JobNotFound, UsageError
from durio.model.ids import id_bytes
from durio.model.job import DEAD
from durio.ports.browse import Query
from durio.ports.control import Counted, Verb

# Verb -> what will become of them, and what did.
WORDS: dict[Verb, tuple[str, str]] = {
    "retry": ("will run again", "run again"),
    "discard": ("will be deleted for good", "deleted"),
}
WHY_NOT: dict[Verb, str] = {
    "retry": "no longer dead, or another job has their idempotency key",
    "discard": "no longer dead",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """How a command line chooses dead letters, and how it wants to be asked."""

    job_ids: Sequence[str]
    filters: Filters
    everything: bool
    limit: int | None
    yes: bool
    dry_run: bool
    by: str | None

    def check(self) -> None:
        """Ids, or filters, or --all: exactly one way to say which."""
        is_filtered = not self.filters.is_empty()
        if self.job_ids and (is_filtered or self.everything or self.limit):
            raise UsageError(
                "ids and filters are both given",
                cure="Name the jobs by id, or choose them by filters.",
            )
        if self.everything and is_filtered:
            raise UsageError("--all and filters are both given", cure="Give one.")
        if not (self.job_ids or is_filtered or self.everything):
            raise UsageError(
                "no dead letters are chosen",
                cure="Give ids, filters such as --task, or --all.",
            )


BULK_OPTIONS = (
    click.argument("job_ids", metavar="[ID]...", nargs=-1),
    click.option("--all", "everything", is_flag=True, help="Every dead letter."),
    click.option(
        "--limit",
        type=click.IntRange(1),
        metavar="N",
        help="At most so many, those that are dead the longest.",
    ),
    YES_OPTION,
    DRY_RUN_OPTION,
    BY_OPTION,
)


def bulk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Ids, --all and how to ask, with the filters, handed over as one `bulk`."""

    @functools.wraps(function)
    def called(*, filters: Filters, **given: Any) -> Any:
        names = [name for name in Bulk.__slots__ if name != "filters"]
        chosen = {name: given.pop(name) for name in names}
        return function(bulk=Bulk(filters=filters, **chosen), **given)

    for option in reversed(BULK_OPTIONS):
        called = option(called)
    return called


def act_on_letters(place: Place, bulk: Bulk, verb: Verb) -> int:
    """Do it to those that are chosen; the exit code."""
    bulk.check()
    if bulk.job_ids:
        return act_on_named(place, bulk, verb)
    counted, query = place.ask(functools.partial(count, bulk=bulk, place=place))
    jobs = counted.jobs if bulk.limit is None else min(counted.jobs, bulk.limit)
    which = f"{bulk.filters.words()}{scope(query)}"
    told = f"{letters_text(jobs)}{which}"
    if not jobs or bulk.dry_run:
        return show_done(place, counted.jobs, Done(0), told, dry_run=bulk.dry_run)
    confirm(f"{told} {WORDS[verb][0]}", yes=bulk.yes)
    by = who(bulk.by)

    async def do(app: App) -> Done:
        store = await app.store()
        return await in_steps(
            lambda limit: store.act_on(query, verb, counted.mark, limit, by=by),
            jobs,
            verb,
        )

    done = place.ask(do)
    words = f"{letters_text(done.jobs)}{which} {WORDS[verb][1]}"
    words += done.held_text(verb)
    if others := jobs - done.jobs - done.held:
        words += f"; {others} not: {WHY_NOT[verb]}"
    return show_done(place, counted.jobs, done, words, dry_run=False)


async def count(app: App, *, bulk: Bulk, place: Place) -> tuple[Counted, Query]:
    """Exactly how many fit now, and what to act on: those and no later ones."""
    query = bulk.filters.query(app, place)
    return await (await app.store()).count(query), query


def scope(query: Query) -> str:
    """Whose they are, where nothing says so: that must not come as a surprise."""
    is_narrow = query.namespace or query.lane or query.task
    return "" if is_narrow else " (of every App in the store)"


def letters_text(jobs: int) -> str:
    """`42 dead letters`."""
    number = "no" if jobs == 0 else str(jobs)
    return f"{number} dead letter{'' if jobs == 1 else 's'}"


# --- named by id


def act_on_named(place: Place, bulk: Bulk, verb: Verb) -> int:
    """Do it to those; what cannot be undone is confirmed."""
    if verb == "discard" or bulk.dry_run:
        dead = place.ask(
            functools.partial(count_dead, job_ids=bulk.job_ids, place=place)
        )
        told = letters_text(dead)
        if bulk.dry_run:
            return show_done(place, dead, Done(0), told, dry_run=True)
        if dead:
            confirm(f"{told} {WORDS[verb][0]}", yes=bulk.yes)
    return act(place, bulk.job_ids, verb, by=who(bulk.by))


async def count_dead(app: App, *, job_ids: Sequence[str], place: Place) -> int:
    """How many of these are dead, and of the App that was named."""
    known: set[bytes] = set()
    for job_id in job_ids:
        try:
            known.add(id_bytes(job_id))
        except JobNotFound:
            continue  # it is answered for when it is acted on
    known -= (await of_other_apps(app, list(known), place)).keys()
    states = await (await app.store()).states(list(known))
    return sum(state == DEAD for state in states.values())

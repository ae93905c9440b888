"""`durio errors`: list, show and mute groups of errors; retry or discard their dead jobs."""

from collections.abc import Mapping
from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, ListSelection, list_options, selection_options
from durio.cli.dead_actions import VERB_TEXTS
from durio.cli.filters import LIMIT_OPTION
from durio.cli.main import keep_lines
from durio.cli.output import age, show_json, show_table, show_text
from durio.cli.prompts import (
    BY_OPTION,
    DRY_RUN_OPTION,
    YES_OPTION,
    BulkSummary,
    act_on_counted,
    confirm,
    operator,
    show_summary,
)
from durio.cli.table import Column
from durio.client.bulk import CountedJobs
from durio.client.error_groups import (
    StoredGroup,
    dead_jobs_of,
    find_group,
    list_groups,
    mute_group,
)
from durio.client.namespaces import apps_in
from durio.client.queue_handle import check_reason_text
from durio.model.error_groups import ErrorGroup, Mute
from durio.model.job import DEAD, utc_datetime
from durio.model.quantities import counted
from durio.ports.browse import Query
from durio.ports.control import ACTION_OF_VERB, Verb
from durio.ports.store import Store

COLUMNS = (
    Column("errors", least=12),
    Column("failed"),
    Column("dead"),
    Column("last"),
    Column("first", 3),
    Column("task", 1, least=12),
    Column("type", least=12),
    Column("message", 2, least=20),
)
APP = Column("app", least=8)
# How many jobs one step of an action changes.
CHUNK_JOBS = 1_000


@click.group("errors", short_help="Group errors by cause; retry or mute a group.")
@keep_lines
def command() -> None:
    r"""Show the errors of tasks in groups, and act on a whole group.

    Errors with the same type and the same functions of your code in their traceback are
    one group, on every machine and in every version (App(version=...) or DURIO_VERSION).
    Workers count failed attempts; a group without an error for 30 days is deleted. The
    beginning of a fingerprint is enough if it has at least 4 characters and is unique.

    \b
    Exit codes:
      0  done
      1  no such group, or not confirmed, and nothing was changed
      2  usage, or no terminal for the question
      3, 4, 5  store, import of the App, schema
    """


@command.command("ls")
@click.option("--all", "with_muted", is_flag=True, help="Also muted groups.")
@LIMIT_OPTION
@list_options
@keep_lines
def list_all(*, selection: ListSelection, with_muted: bool, limit: int) -> None:
    r"""List groups of errors, that of the newest error first.

    \b
    Examples:
      durio errors ls
      durio errors ls --all --json | jq -r '.groups[] | [.failed, .type] | @tsv'

    With --json: {"groups": [...], "muted"}. A group has {"fingerprint", "namespace",
    "type", "message", "frames", "first_at", "last_at", "last_job", "failed", "dead",
    "tasks", "versions", "hosts", "mute"}; "tasks", "versions" and "hosts" are numbers of
    failed attempts by name, "mute" is null or {"by", "at", "reason"}. The second "muted"
    is the number of muted groups that are not listed.
    """

    async def ask(app: App, scope: str | None) -> tuple[list[StoredGroup], float]:
        store = await app.store()
        names = await apps_in(store) if scope is None else [scope]
        found = [each for name in names for each in await list_groups(store, name)]
        return sorted(found, key=lambda one: -one.group.last_at), app.now()

    found, now = selection.run_list(ask)
    shown = [one for one in found if with_muted or one.group.mute is None]
    hidden = len(found) - len(shown)
    if selection.is_json:
        show_json({"groups": [fields(one) for one in shown[:limit]], "muted": hidden})
        return
    with_app = selection.all_apps
    rows = [([one.namespace] if with_app else []) + cells(one, now) for one in shown]
    show_table((APP, *COLUMNS) if with_app else COLUMNS, rows[:limit], "no errors")
    if len(rows) > limit:
        show_text(f"{len(rows) - limit} more: --limit {len(rows)}")
    if hidden:
        show_text(f"{hidden} muted: --all")


def cells(one: StoredGroup, now: float) -> list[Any]:
    group = one.group
    tasks = sorted(group.tasks, key=lambda name: -group.tasks[name])
    more = f" +{len(tasks) - 1}" if len(tasks) > 1 else ""
    return [
        one.fingerprint + (" muted" if group.mute else ""),
        group.failed,
        group.dead,
        age(utc_datetime(group.last_at), now),
        age(utc_datetime(group.first_at), now),
        f"{tasks[0]}{more}" if tasks else "-",
        group.type,
        group.message,
    ]


def fields(one: StoredGroup) -> dict[str, Any]:
    """Return a group as JSON, with times as text."""
    group = one.group
    names = ErrorGroup.__struct_fields__
    found = {name: getattr(group, name) for name in names if name != "mute"}
    times = {name: utc_datetime(found[name]) for name in ("first_at", "last_at")}
    mute = group.mute
    muted = mute and {
        "by": mute.by,
        "at": utc_datetime(mute.at),
        "reason": mute.reason,
    }
    first = {"fingerprint": one.fingerprint, "namespace": one.namespace}
    return {**first, **found, **times, "mute": muted}


@command.command("show")
@click.argument("fingerprint", metavar="FINGERPRINT")
@selection_options
@keep_lines
def show_one(*, selection: AppSelection, fingerprint: str) -> None:
    r"""Show a group: where it happens, since when, in which versions, on which hosts.

    \b
    Example:
      durio errors show 3f9a

    With --json: the fields of a group of `durio errors ls`.
    """

    async def ask(app: App) -> tuple[StoredGroup, float]:
        return await group_by_name(app, selection, fingerprint), app.now()

    found, now = selection.run_unscoped(ask)
    if selection.is_json:
        show_json(fields(found))
        return
    for line in lines(found, now, selection.flags()):
        show_text(line)


def lines(one: StoredGroup, now: float, flags: str) -> list[str]:
    """Return the description of a group, for people."""
    group = one.group
    first, last = (age(utc_datetime(at), now) for at in (group.first_at, group.last_at))
    found = [
        f"{one.fingerprint}  {group.type}: {group.message}",
        f"  {counted(group.failed, 'failed attempt')}, {counted(group.dead, 'dead job')}",
        f"  first {first} ago, last {last} ago; last job {group.last_job}",
    ]
    if group.mute is not None:
        why = f": {group.mute.reason}" if group.mute.reason else ""
        since = age(utc_datetime(group.mute.at), now)
        found.append(f"  muted by {group.mute.by} {since} ago{why}")
    for title, counts in (
        ("tasks", group.tasks),
        ("versions", group.versions),
        ("hosts", group.hosts),
    ):
        found.append(f"  {title}: {counts_text(counts)}")
    if group.frames:
        found += ["  functions, the last one raised it:"]
        found += [f"    {frame}" for frame in group.frames]
    found += [
        f"durio dead show {group.last_job}{flags}   # if it is dead: its traceback",
        f"durio errors retry {one.fingerprint}{flags}   # run its dead jobs again",
    ]
    return found


def counts_text(counts: Mapping[str, int]) -> str:
    pairs = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name or 'others'} ({count})" for name, count in pairs) or "-"


async def group_by_name(
    app: App, selection: AppSelection, fingerprint: str
) -> StoredGroup:
    store, scope = await app.store(), selection.scope(app)
    names = await apps_in(store) if scope is None else [scope]
    return await find_group(store, names, fingerprint)


# --- changes


@command.command("mute")
@click.argument("fingerprint", metavar="FINGERPRINT")
@click.option("--reason", metavar="TEXT", help="Reason to show with the group.")
@click.option("--off", is_flag=True, help="Show the group again.")
@BY_OPTION
@selection_options
@keep_lines
def mute_one(
    *,
    selection: AppSelection,
    fingerprint: str,
    reason: str | None,
    off: bool,
    by: str | None,
) -> None:
    r"""Leave a group out of `durio errors ls`; its errors are still counted.

    \b
    Examples:
      durio errors mute 3f9a --reason "known, fixed in 2.4"
      durio errors mute 3f9a --off

    With --json: the fields of a group of `durio errors ls`.
    """
    why = None if reason is None else check_reason_text(reason)
    who = operator(by)

    async def change(app: App) -> StoredGroup:
        store: Store = await app.store()
        found = await group_by_name(app, selection, fingerprint)
        mute = None if off else Mute(who, app.now(), why)
        await mute_group(store, found, mute, who)
        return await find_group(store, [found.namespace], found.fingerprint)

    found = selection.run_unscoped(change)
    if selection.is_json:
        show_json(fields(found))
    else:
        show_text(f"{found.fingerprint} is {'not ' if off else ''}muted")


@command.command("retry")
@click.argument("fingerprint", metavar="FINGERPRINT")
@YES_OPTION
@DRY_RUN_OPTION
@BY_OPTION
@selection_options
@keep_lines
def retry_group(
    *,
    selection: AppSelection,
    fingerprint: str,
    yes: bool,
    dry_run: bool,
    by: str | None,
) -> int:
    r"""Run the dead jobs of a group again, as `durio dead retry` does.

    Its jobs are those whose last error belongs to the group, at most 10,000 in one call.

    \b
    Example:
      durio errors retry 3f9a --dry-run

    With --json: {"counted", "done", "held", "alone", "dry_run"}.
    """
    return act_on_group(selection, fingerprint, "retry", yes, dry_run, by)


@command.command("discard")
@click.argument("fingerprint", metavar="FINGERPRINT")
@YES_OPTION
@DRY_RUN_OPTION
@BY_OPTION
@selection_options
@keep_lines
def discard_group(
    *,
    selection: AppSelection,
    fingerprint: str,
    yes: bool,
    dry_run: bool,
    by: str | None,
) -> int:
    r"""Delete the dead jobs of a group for good, as `durio dead discard` does.

    Its jobs are those whose last error belongs to the group, at most 10,000 in one call.

    \b
    Example:
      durio errors discard 3f9a --yes

    With --json: {"counted", "done", "held", "dry_run"}.
    """
    return act_on_group(selection, fingerprint, "discard", yes, dry_run, by)


def act_on_group(
    selection: AppSelection,
    fingerprint: str,
    verb: Verb,
    yes: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
    by: str | None,
) -> int:
    """Find the dead jobs of a group, confirm, and act on those."""

    async def find(app: App) -> tuple[StoredGroup, list[bytes], str]:
        store = await app.store()
        found = await group_by_name(app, selection, fingerprint)
        mark = (await store.count(Query(found.namespace, states=(DEAD,)))).mark
        return found, await dead_jobs_of(store, found), mark

    found, ids, mark = selection.run_unscoped(find)
    text = f"{counted(len(ids), 'dead letter')} of errors {found.fingerprint}"
    if dry_run or not ids:
        return show_summary(selection, len(ids), text, dry_run=dry_run)
    before, after = VERB_TEXTS[verb]
    confirm(f"{text} {before}", yes=yes)
    done = BulkSummary(0)
    for at in range(0, len(ids), CHUNK_JOBS):
        some = tuple(ids[at : at + CHUNK_JOBS])
        query = Query(found.namespace, states=(DEAD,), ids=some)
        chosen = CountedJobs(query, mark, len(some))
        step = act_on_counted(selection, ACTION_OF_VERB[verb], chosen, verb, by)
        done = BulkSummary(*(sum(pair) for pair in zip(done, step, strict=True)))
    words = f"{counted(done.jobs, 'dead letter')} {after}"
    words += done.alone_text() + done.held_text(verb)
    if others := len(ids) - done.jobs - done.held:
        words += f"; {others} not: no longer dead"
    more = {"alone": done.alone} if verb == "retry" else None
    return show_summary(selection, len(ids), words, done, more=more)

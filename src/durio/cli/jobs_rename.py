"""`durio jobs rename` gives the stored jobs of a task its new name."""

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, selection_options
from durio.cli.known_names import stored_task
from durio.cli.main import keep_lines
from durio.cli.prompts import (
    BY_OPTION,
    DRY_RUN_OPTION,
    YES_OPTION,
    act_on_counted,
    confirm,
    show_summary,
)
from durio.client.bulk import CountedJobs
from durio.client.task_by_name import published_tasks
from durio.model.errors import UnknownTask, UsageError
from durio.model.names import check_name, did_you_mean, known_as, task_name
from durio.ports.browse import Query
from durio.ports.control import RenameJobs


@click.command("rename")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@YES_OPTION
@DRY_RUN_OPTION
@BY_OPTION
@selection_options
@keep_lines
def rename_jobs(
    *,
    selection: AppSelection,
    old: str,
    new: str,
    yes: bool,
    dry_run: bool,
    by: str | None,
) -> None:
    r"""Rename the task of stored jobs, after the task was renamed in code.

    Renames waiting and dead jobs, in several transactions; their idempotency keys stay
    valid. Running jobs keep the old name: leave it in `aliases=` until they have ended.
    NEW must be a task that a worker has published, or one of the App that --app names.
    OLD must be such a task, an alias of one, or a task that a stored job has.

    \b
    Examples:
      durio jobs rename send_mail send_receipt --dry-run
      durio jobs rename shop.send_mail shop.send_receipt --yes --by deploy

    With --json: {"counted", "done", "held", "dry_run"}. `held` jobs were not
    renamed: another job has their key, or an open transaction locks them.

    \b
    Exit codes: 2 usage, an unknown OLD or NEW, or not confirmed: nothing was renamed
    """
    source, action, counted = count_jobs(selection, old, new)
    jobs, target = counted.limit, action.task
    what = f"{jobs:,} {'job' if jobs == 1 else 'jobs'} of {source}"
    if not jobs or dry_run:
        show_summary(selection, jobs, f"{what} to rename", dry_run=dry_run)
        return
    confirm(f"{what} will be renamed to {target}", yes=yes)
    done = act_on_counted(selection, action, counted, "rename", by)
    words = f"{done.jobs:,} of {what} renamed to {target}{done.held_text('rename')}"
    show_summary(selection, jobs, words, done)


def count_jobs(
    selection: AppSelection, old: str, new: str
) -> tuple[str, RenameJobs, CountedJobs]:
    """Return the full old name, the action, and the jobs that it will change."""

    async def ask(app: App) -> tuple[str, RenameJobs, CountedJobs]:
        source = task_name(app.name, check_name("task", old))
        named = task_name(app.name, check_name("task", new))
        check_pair(source, named)
        target = await known_task(app, named)
        check_pair(source, target)
        namespace, action = source.partition(".")[0], RenameJobs(target)
        query = Query(namespace=namespace, states=action.states, task=source)
        counted = await (await app.store()).count(query)
        if not counted.jobs:
            await stored_task(app, source, namespace)  # raises for a misspelt name
        return source, action, CountedJobs(query, counted.mark, counted.jobs)

    return selection.run(ask)


async def known_task(app: App, task: str) -> str:
    """Return the task's own name, also for an alias; raise UnknownTask."""
    handler = app.registry.by_name.find_target(task)
    if handler is not None:
        return handler.task
    namespace = task.partition(".")[0]
    published = await published_tasks(await app.store(), namespace) or {}
    name = known_as(task, published)
    if name is None:
        raise UnknownTask(
            f"no worker knows a task {task!r}",
            cure="Start a worker that has it, or name its code with --app."
            f"{did_you_mean(task, published)}",
            task=task,
        )
    return published[name].get("task", task)


def check_pair(source: str, target: str) -> None:
    if source == target:
        raise UsageError(f"{source} is the same task", cure="Name two tasks.")
    if source.partition(".")[0] != target.partition(".")[0]:
        raise UsageError(
            f"{source} and {target} belong to different Apps",
            cure="The part before the dot must be the same.",
        )

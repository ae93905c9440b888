"""Find the stored names of tasks and queues that a filter names, or raise an error.

A filter with a misspelt name would list nothing, which looks like good news.
"""

from collections.abc import Sequence

from durio.app.app import App
from durio.cli.queue_rows import check_known, known_queues
from durio.client.namespaces import apps_in, has_jobs
from durio.client.task_by_name import published_tasks
from durio.model.errors import UnknownTask, UsageError
from durio.model.names import (
    check_name,
    did_you_mean,
    known_as,
    lane,
    namespace_of,
    task_name,
)
from durio.ports.browse import Query

NEWEST_JOBS = 200
SHOWN_MAX = 8


async def stored_task(app: App, task: str, scope: str | None) -> str:
    """Return the stored name of a task; without a scope it may be of any App."""
    check_name("task", task)
    scopes = await scopes_of(app, scope)
    known = {name: await known_tasks(app, name) for name in scopes}
    found = [
        stored
        for name in scopes
        if known_as(stored := task_name(name, task), known[name])
        or await has_jobs(await app.store(), name, stored)
    ]
    if found:
        return only_one(found, task, "task")
    every = sorted({each for tasks in known.values() for each in tasks})
    raise UnknownTask(
        f"there is no task {task!r}{scope_text(scope)}: no job and no worker has it",
        cure=f"Known: {names_text(every)}.{suggestion(task, every)}",
        task=task,
    )


async def check_namespace(app: App, task: str) -> None:
    """Raise UnknownTask if a full name has an App that neither code nor store knows.

    `module.function` looks like such a name. The job would wait for ever, and the store
    would have a second App.
    """
    namespace, dot, _ = task.partition(".")
    if not dot or app.origin is None or namespace == app.name:
        return
    if namespace in (known := await apps_in(await app.store())):
        return
    own = task_name(app.name, task.rpartition(".")[2])
    meant = f" Did you mean {own!r}?" if app.registry.by_name.find(own) else ""
    raise UnknownTask(
        f"task {task!r} is of an App {namespace!r}, which has never used this store",
        cure=f"Apps: {', '.join(sorted({app.name, *known}))}.{meant}\n"
        f"If there will be such an App, name it: --store URL --name {namespace}",
        task=task,
    )


async def stored_lane(app: App, queue: str, scope: str | None) -> str:
    """Return the stored name of a queue; without a scope it may be of any App."""
    check_name("queue", queue)
    scopes = await scopes_of(app, scope)
    known = {name: await known_queues(app, name) for name in scopes}
    found = [lane(name, queue) for name in scopes if queue in known[name]]
    if not found:
        every = {each for queues in known.values() for each in queues}
        check_known([queue], every, scope)
    return only_one(found, queue, "queue")


async def scopes_of(app: App, scope: str | None) -> Sequence[str]:
    return [scope] if scope is not None else await apps_in(await app.store())


async def known_tasks(app: App, namespace: str) -> set[str]:
    """Return tasks that workers published, that this code has, or that new jobs name."""
    store = await app.store()
    known = set(await published_tasks(store, namespace) or ())
    if namespace == app.name:
        known |= app.registry.by_name.keys()
    page = await store.find(Query(namespace=namespace), limit=NEWEST_JOBS, cursor=None)
    return known | {job.task for job in page.jobs}


def only_one(found: Sequence[str], name: str, kind: str) -> str:
    """Return the stored name; raises UsageError if several Apps have it."""
    if len(set(found)) > 1:
        apps = [namespace_of(each) if kind == "queue" else each for each in found]
        cure = (
            f"Name one App in place of --all-apps: --name {apps[0]}"
            if kind == "queue"
            else f"Write one of them: --task {apps[0]}"
        )
        raise UsageError(
            f"several Apps have a {kind} {name!r}: {', '.join(apps)}", cure=cure
        )
    return found[0]


def scope_text(scope: str | None) -> str:
    return " in any App" if scope is None else f" in App {scope}"


def names_text(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN_MAX]) or "none"


def suggestion(task: str, known: Sequence[str]) -> str:
    """Return a close name; a task may be written with its App or without."""
    short = {each.partition(".")[2]: each for each in known}
    return did_you_mean(task, known) or did_you_mean(task, short)

"""Runs every check; one that fails itself is a finding, never a traceback."""

from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping

from durio.app.app import App
from durio.app.connect import checks_of, masked
from durio.doctor import code, machine, queues, settings, workers
from durio.doctor.snapshot import Look, look, namespaces
from durio.model.errors import DurioError
from durio.model.failure import spoken_error
from durio.model.finding import Finding, error

Check = Callable[[], Iterable[Finding]]
StoreCheck = Callable[[], Iterable[Finding] | AsyncIterable[Finding]]
# The store's content is looked at only where none of these says that it cannot be.
GATES = (
    "store.place",
    "store.rights",
    "store.schema",
    "store.integrity",
    "store.move",  # what is left there is nobody's any more
)


async def examine(app: App, *, has_code: bool, is_named: bool) -> list[Finding]:
    """Everything that can be seen from here; nothing is made, changed or repaired.

    `has_code`: the App comes from user code, so its tasks are known. `is_named`: only
    this App's jobs are meant, not those of every App in the store.
    """
    found = list(run(machine_checks(app)))
    found += run(settings_checks(app))
    stored = await ask(store_checks(app))
    found += stored
    if has_code:
        found += run(code.every_check(list(app.registry.handlers.values())))
    is_closed = any(
        finding.name in GATES and finding.severity == "error" for finding in stored
    )
    is_older = any(
        finding.name == "store.schema" and finding.severity != "ok"
        for finding in stored
    )
    if not is_closed and not is_older:
        found += await content(app, has_code=has_code, is_named=is_named)
    return found


async def examine_and_close(
    app: App, *, has_code: bool, is_named: bool
) -> list[Finding]:
    """Examine, then close the App's store, which the checks may have opened."""
    try:
        return await examine(app, has_code=has_code, is_named=is_named)
    finally:
        await app.close()


def run(checks: Mapping[str, Check]) -> Iterator[Finding]:
    """What each check says; its own failure too."""
    for name, check in checks.items():
        try:
            yield from check()
        except Exception as trouble:
            yield failed(name, trouble)


async def ask(checks: Mapping[str, StoreCheck]) -> list[Finding]:
    """The same for checks of a store, some of which wait for a server."""
    found: list[Finding] = []
    for name, check in checks.items():
        try:
            told = check()
            if isinstance(told, AsyncIterable):
                found += [finding async for finding in told]
            else:
                found += told
        except Exception as trouble:
            found.append(failed(name, trouble))
    return found


def failed(name: str, trouble: BaseException) -> Finding:
    """A check that could not be made."""
    if isinstance(trouble, DurioError):
        return error(name, trouble.what, trouble.cure or "See the error.")
    told = (
        f"this check failed itself: {type(trouble).__name__}: {spoken_error(trouble)}"
    )
    return error(name, told, "Please report it, with this line.")


def machine_checks(app: App) -> dict[str, Check]:
    """The machine and its Python."""
    return {
        "machine.python": machine.python,
        "machine.clock": lambda: machine.clock(app.clock),
        "machine.open_files": machine.open_files,
        "machine.time_zones": machine.time_zones,
    }


def settings_checks(app: App) -> dict[str, Check]:
    """The settings that hold."""
    return {
        "settings.heartbeat": lambda: settings.heartbeat(app.settings),
        "settings.dead_letters": lambda: settings.dead_letters(app.settings),
    }


def store_checks(app: App) -> dict[str, StoreCheck]:
    """The store from outside."""
    try:
        return checks_of(app.url).checks(app.url, app.clock)
    except DurioError as trouble:
        told = error("store.url", f"{masked(app.url)}: {trouble.what}", trouble.cure)
        return {"store.url": lambda: [told]}


async def content(app: App, *, has_code: bool, is_named: bool) -> list[Finding]:
    """What is in the store: queues, jobs and workers."""
    registered = frozenset(app.registry.handlers) if has_code else None
    found: list[Finding] = []
    try:
        store = await app.store()
        named = [app.name] if is_named else await namespaces(store)
        for namespace in named:
            known = registered if namespace == app.name else None
            seen = await look(store, app.clock, namespace, known)
            found += told_of(run(content_checks(seen)), namespace, len(named))
    except Exception as trouble:
        found.append(failed("store.content", trouble))
    return found


def content_checks(seen: Look) -> dict[str, Check]:
    """Queues and workers, judged by one look."""
    return {
        name: lambda check=check: check(seen)
        for name, check in {**queues.CHECKS, **workers.CHECKS}.items()
    }


def told_of(
    findings: Iterable[Finding], namespace: str, namespaces_seen: int
) -> list[Finding]:
    """Where several Apps share a store, each finding says whose it is."""
    if namespaces_seen == 1:
        return list(findings)
    return [
        finding._replace(evidence=f"{namespace}: {finding.evidence}")
        for finding in findings
    ]

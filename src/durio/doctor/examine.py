"""Run every check; a check that raises becomes a finding, not a traceback."""

from collections.abc import AsyncIterable, Callable, Iterable, Mapping

from durio.app.app import App
from durio.app.connect import masked, store_module
from durio.app.cures import with_flags
from durio.client.namespaces import apps_in
from durio.doctor import code, machine, queues, schedules, settings, workers
from durio.doctor.snapshot import NAMESPACES_MAX, StoreSnapshot, take_snapshot
from durio.model.errors import DurioError
from durio.model.failure import error_text
from durio.model.finding import Finding, error

# A check of a store may wait for a server.
Check = Callable[[], Iterable[Finding] | AsyncIterable[Finding]]
# If one of these checks fails, the content of the store is not examined.
PRECONDITIONS = (
    "store.place",
    "store.rights",
    "store.schema",
    "store.integrity",
    "store.move",  # jobs left in a store that has moved belong to no worker
)


async def examine(app: App, *, has_code: bool, is_named: bool) -> list[Finding]:
    """Run all checks; they create, change and repair nothing.

    `has_code`: the App comes from user code, so its tasks are known. `is_named`: examine
    only this App's jobs, not those of every App in the store.
    """
    found, is_readable = await examine_outside(app, has_code=has_code)
    if is_readable:
        found += await examine_content(app, has_code=has_code, is_named=is_named)
    return with_commands(found, app)


async def examine_outside(app: App, *, has_code: bool) -> tuple[list[Finding], bool]:
    """Check all but the content of the store; return whether that can be read.

    These checks block the event loop, for some seconds on a large file.
    """
    found = await run_checks(machine_and_settings_checks(app))
    stored = await run_checks(store_checks(app))
    found += stored
    if has_code:
        found += await run_checks(
            code.code_checks(list(app.registry.handlers.values()))
        )
    is_closed = any(
        finding.name in PRECONDITIONS and finding.severity == "error"
        for finding in stored
    )
    is_older = any(
        finding.name == "store.schema" and finding.severity != "ok"
        for finding in stored
    )
    return found, not is_closed and not is_older


def with_commands(found: Iterable[Finding], app: App) -> list[Finding]:
    """Return the findings with commands that name the store of this App."""
    return [finding._replace(fix=with_flags(finding.fix, app)) for finding in found]


async def examine_and_close(
    app: App, *, has_code: bool, is_named: bool
) -> list[Finding]:
    """Examine, then close the App's store, which the checks may have opened."""
    try:
        return await examine(app, has_code=has_code, is_named=is_named)
    finally:
        await app.close()


async def run_checks(checks: Mapping[str, Check]) -> list[Finding]:
    """Yield the findings of each check, or a finding that the check failed."""
    found: list[Finding] = []
    for name, check in checks.items():
        try:
            findings = check()
            if isinstance(findings, AsyncIterable):
                found += [finding async for finding in findings]
            else:
                found += findings
        except Exception as trouble:
            found.append(failed_check(name, trouble))
    return found


def failed_check(name: str, trouble: BaseException) -> Finding:
    if isinstance(trouble, DurioError):
        return error(name, trouble.what, trouble.cure or "See the error.")
    evidence = (
        f"the check itself failed: {type(trouble).__name__}: {error_text(trouble)}"
    )
    return error(name, evidence, "Please report it, with this line.")


def machine_and_settings_checks(app: App) -> dict[str, Check]:
    return {
        "machine.python": machine.python,
        "machine.clock": lambda: machine.clock(app.clock),
        "machine.open_files": machine.open_files,
        "machine.time_zones": machine.time_zones,
        "settings.heartbeat": lambda: settings.heartbeat(app.settings),
        "settings.dead_letters": lambda: settings.dead_letters(app.settings),
    }


def store_checks(app: App) -> dict[str, Check]:
    """Return the checks that do not read the content of the store."""
    try:
        return store_module(app.url, "checks").checks(app.url, app.clock)
    except DurioError as trouble:
        finding = error("store.url", f"{masked(app.url)}: {trouble.what}", trouble.cure)
        return {"store.url": lambda: [finding]}


async def examine_content(app: App, *, has_code: bool, is_named: bool) -> list[Finding]:
    registered = frozenset(app.registry.by_name) if has_code else None
    found: list[Finding] = []
    try:
        store = await app.store()
        named = [app.name] if is_named else (await apps_in(store))[:NAMESPACES_MAX]
        for namespace in named:
            known = registered if namespace == app.name else None
            seen = await take_snapshot(store, app.clock, namespace, known)
            stored = await schedules.read_schedules(store, namespace)
            checks = content_checks(seen) | schedules.schedule_checks(seen, *stored)
            findings = await run_checks(checks)
            found += with_namespace(findings, namespace, len(named))
    except Exception as trouble:
        found.append(failed_check("store.content", trouble))
    return found


def content_checks(snapshot: StoreSnapshot) -> dict[str, Check]:
    """Return the checks of queues and workers, which all use the same snapshot."""
    return {
        name: lambda check=check: check(snapshot)
        for name, check in {**queues.CHECKS, **workers.CHECKS}.items()
    }


def with_namespace(
    findings: list[Finding], namespace: str, namespace_count: int
) -> list[Finding]:
    """Prefix each finding with its App's name if several Apps share the store."""
    if namespace_count == 1:
        return findings
    return [
        finding._replace(evidence=f"{namespace}: {finding.evidence}")
        for finding in findings
    ]

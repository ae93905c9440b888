"""`durio doctor`: finds problems and says how to fix them."""

import asyncio
from collections.abc import Sequence
from itertools import groupby

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, app_argument, selection_options, shown_url
from durio.cli.main import AppImportFailed, keep_lines
from durio.cli.output import has_colour, safe, show_json, show_text
from durio.doctor.examine import examine_and_close
from durio.model.finding import Finding, error, fine
from durio.model.quantities import counted

FOUND_ERRORS = 8
MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
WIDTH = 16
INDENT = " " * 13
FIX_INDENT = INDENT + " " * len("fix: ")


@click.command("doctor", short_help="Check machine, settings and store for problems.")
@click.option("--strict", is_flag=True, help="Exit with 8 for warnings too.")
@selection_options
@app_argument
@keep_lines
def command(*, selection: AppSelection, strict: bool) -> int:
    r"""Check for problems, and print how to fix each.

    Checks the machine, the settings, the store and its location, queues, workers and,
    with an App, the source of its tasks. Nothing is created, changed or repaired,
    except for a temporary file beside the store that measures the disk. Without an App,
    the queues of every App in the store are checked.

    \b
    Examples:
      durio doctor shop.jobs:app
      durio doctor --store sqlite:///jobs.db --strict
      durio doctor --json | jq '.checks[] | select(.severity != "ok")'

    With --json: {"checks": [{"name", "severity", "evidence", "fix"}], "errors",
    "warnings"}; "severity" is ok, warning or error.

    \b
    Exit codes: 0 no errors; 8 errors (with --strict also warnings); 2 usage
    """
    app, found = load_or_report(selection)
    has_code = app.origin is not None and not any(f.severity == "error" for f in found)
    is_named = selection.scope(app) is not None
    found += asyncio.run(examine_and_close(app, has_code=has_code, is_named=is_named))
    errors = sum(finding.severity == "error" for finding in found)
    warnings = sum(finding.severity == "warning" for finding in found)
    if selection.is_json:
        rows = [finding._asdict() for finding in found]
        show_json({"checks": rows, "errors": errors, "warnings": warnings})
    else:
        show(found, errors, warnings)
    return FOUND_ERRORS if errors or (strict and warnings) else 0


def load_or_report(selection: AppSelection) -> tuple[App, list[Finding]]:
    """Return the App; if its code cannot be loaded, one that knows only its name and store."""
    try:
        app = selection.app()
    except AppImportFailed as trouble:
        lines = [line.strip() for line in trouble.traceback_text.splitlines()]
        places = [line for line in lines if line.startswith("File ")]
        evidence = trouble.what + "".join(f" ({place})" for place in places[-1:])
        bare = selection.app_without_code()
        fix = f"{trouble.cure}\nThe checks below are about {shown_url(bare)}."
        return bare, [error("app.import", evidence, fix)]
    if app.origin is None:
        return app, []
    app.emit.subscribers.clear()  # the checks report what it would log
    tasks = len(app.registry.handlers)
    if not tasks:
        fix = "Name the modules with tasks in App(imports=(...))."
        return app, [error("app.import", f"{app.origin} has no tasks", fix)]
    return app, [fine("app.import", f"{app.origin}, {counted(tasks, 'task')}")]


def show(found: Sequence[Finding], errors: int, warnings: int) -> None:
    """Print one line per finding, in groups, with the fix below."""
    for group, findings in groupby(found, key=lambda finding: finding.group):
        show_text(group)
        for finding in findings:
            click.echo(finding_line(finding))
            if finding.fix:
                show_text(
                    f"{INDENT}fix: " + finding.fix.replace("\n", f"\n{FIX_INDENT}")
                )
    counts = (
        counted(errors, "error"),
        counted(warnings, "warning"),
        counted(len(found), "check"),
    )
    show_text(", ".join(counts))


def finding_line(finding: Finding) -> str:
    """Return a finding as a line, on a terminal with a sign before it."""
    mark, colour = MARKS[finding.severity]
    word = f"{finding.severity:<8}"
    if has_colour():
        word = click.style(f"{mark} {word}", fg=colour)
    name = finding.name.partition(".")[2]
    return f"  {word} {name:<{WIDTH}} {safe(finding.evidence, is_line=True)}"

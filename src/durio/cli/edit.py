"""`durio dead retry --edit|--args`: one job again, with other arguments."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from durio.app.app import App
from durio.app.edit import checked_payload
from durio.cli.answers import answer, of_other_apps, refusal, show_answers
from durio.cli.apps import Place
from durio.cli.bulk import Bulk
from durio.cli.confirm import NotConfirmed, is_asked_person, who
from durio.cli.enqueue import parse_arguments, parse_json
from durio.cli.main import error_fields, error_text
from durio.cli.output import show_json, show_text
from durio.cli.record import arguments_of
from durio.model.errors import InvalidArguments, UsageError
from durio.model.ids import id_text
from durio.model.job import Record
from durio.ports.control import Acted

Arguments = tuple[list[Any], dict[str, Any]]
Find = Callable[[App, str], Awaitable[Record]]
CURE = "Correct it in the editor; nothing was changed."


class Both(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of a job that has positionals, as a person edits them."""

    args: list[Any]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What a command line says about other arguments."""

    arguments: str | None  # None: ask in an editor
    unchecked: bool


def retry_edited(place: Place, bulk: Bulk, edit: Edit, find: Find) -> int:
    """Check the new arguments, then run the job again with them; the exit code."""
    if len(bulk.job_ids) != 1:
        raise UsageError(
            "--edit and --args are for one job", cure="Name one job by its id."
        )
    record = place.ask(lambda app: found_here(app, bulk.job_ids[0], place, find))
    if edit.arguments is None:
        payload = asked_payload(place, record, edit)
    else:
        arguments = parse_arguments(edit.arguments)
        payload = check(place, record, arguments, unchecked=edit.unchecked)
    if bulk.dry_run:
        return show_dry_run(place, record, payload)
    by = who(bulk.by)

    async def ask(app: App) -> Acted:
        return await (await app.store()).retry_edited(record.id, payload, by=by)

    acted = place.ask(ask)
    row = answer(id_text(record.id), acted, refusal(acted, "retry"))
    return show_answers(place, [row], "retry")


async def found_here(app: App, job_id: str, place: Place, find: Find) -> Record:
    """The job, unless another App was named than its own."""
    record = await find(app, job_id)
    for error in (await of_other_apps(app, [record.id], place)).values():
        raise error
    return record


def check(
    place: Place, record: Record, arguments: Arguments, *, unchecked: bool
) -> bytes:
    """The arguments as a payload, or the error that says what is wrong with them."""
    args, kwargs = arguments

    async def ask(app: App) -> bytes:
        return await checked_payload(
            app, record.task, args, kwargs, unchecked=unchecked
        )

    return place.ask(ask)


def show_dry_run(place: Place, record: Record, payload: bytes) -> int:
    """What the job would run with."""
    if place.is_json:
        show_json({"counted": 1, "done": 0, "held": 0, "dry_run": True})
    else:
        show_text(f"{id_text(record.id)}  would run with {payload.decode()}")
    return 0


# --- in an editor


def asked_payload(place: Place, record: Record, edit: Edit) -> bytes:
    """Let a person change the arguments until they fit, or until they give up."""
    if not is_asked_person():
        raise UsageError(
            "--edit needs a terminal", cure="Give the arguments with --args JSON."
        )
    text, is_plain = editable(record)
    while True:
        written = written_by_person(text)
        if written is None or written == text:
            raise NotConfirmed("the arguments were not changed: nothing was done")
        text = written
        try:
            arguments = edited(text, is_plain=is_plain)
            return check(place, record, arguments, unchecked=edit.unchecked)
        except UsageError as error:
            click.echo(error_text(error_fields(error)), err=True)
            if not click.confirm("Edit again?", default=True, err=True):
                raise NotConfirmed("given up: nothing was changed") from None


def written_by_person(text: str) -> str | None:
    """What the editor saved; None: nothing."""
    try:
        return click.edit(text, extension=".json")
    except click.ClickException as error:
        raise UsageError(
            f"the editor failed: {error.format_message()}",
            cure="Set $EDITOR to one that works, or give --args JSON.",
        ) from None


def editable(record: Record) -> tuple[str, bool]:
    """The arguments as text; plain: an object of keywords, without positionals."""
    args, kwargs = arguments_of(record)
    is_plain = not args
    shown = kwargs if is_plain else {"args": args, "kwargs": kwargs}
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n", is_plain


def edited(text: str, *, is_plain: bool) -> Arguments:
    """The arguments from what a person wrote."""
    if is_plain:
        return parse_arguments(text)
    value = parse_json(text, "the arguments", CURE)
    try:
        both = msgspec.convert(value, Both)
    except msgspec.ValidationError as error:
        raise InvalidArguments(f"the arguments: {error}", cure=CURE) from None
    return both.args, both.kwargs

"""What a schedule runs: a task with arguments, a signature, or a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import msgspec

from durio.client.plan_enqueue import PlanClient
from durio.client.tick_maker import ClientTickMaker
from durio.model.errors import InvalidSchedule
from durio.model.options import UNSET, CallOptions
from durio.model.plan import AnyLink, PlanValue, SignatureValue, signatures_of
from durio.model.plan_arguments import check_whole
from durio.model.plan_checks import two_apps
from durio.model.plan_document import options_from
from durio.model.plan_layout import WRITTEN_AT_ONCE_MAX
from durio.model.schedule import LINK_BYTES_MAX, ScheduleRecord
from durio.model.tick import TickPlace
from durio.telemetry.emit import Emitter

NOT_SCHEDULED = ("key", "unique", "tx", "at")
CURES = {
    "key": "Each tick makes its job once without a key: leave it out.",
    "unique": "Each tick makes its job once without a key: leave it out.",
    "tx": "A schedule is stored in a transaction of its own: leave tx out.",
    "at": "The schedule says when its jobs run: leave at out.",
}


class SignatureMaker(Protocol):
    """A task, as a schedule needs it."""

    def s(self, /, *args: Any, **kwargs: Any) -> Any: ...


class LinkClient(PlanClient, Protocol):
    """The part of an App that makes signatures."""

    emit: Emitter

    def named(self, name: str) -> Any: ...


def link_of(
    client: LinkClient,
    what: object,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
) -> AnyLink:
    """Return the signature or plan that a schedule runs; refuse one that cannot run."""
    args = () if args is None else args
    kwargs = {} if kwargs is None else kwargs
    _check_arguments(args, kwargs)
    if isinstance(what, str):
        what = client.named(what)
    if isinstance(what, SignatureValue | PlanValue):
        link: AnyLink = what
        if args or kwargs:
            raise InvalidSchedule(
                f"{what!r:.80} has its arguments, and args or kwargs are given too",
                cure="Give the arguments to .s(...), or pass the task itself.",
            )
    else:
        task: Any = what
        if not callable(getattr(task, "s", None)):
            raise InvalidSchedule(
                f"a schedule cannot run {what!r:.80}",
                cure="Pass a task, its name, a signature task.s(...), or a plan.",
            )
        link = task.s(*args, **kwargs)
    _check_link(client, link)
    return link


def with_arguments(
    client: LinkClient,
    name: str,
    stored: Mapping[str, Any],
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
) -> AnyLink:
    """Return the stored task of a schedule, with its options, and other arguments."""
    if "task" not in stored:
        raise InvalidSchedule(
            f"the schedule {name!r} runs a plan, whose jobs have their own arguments",
            cure="Pass another plan.",
        )
    link = link_of(client, stored["task"], args, kwargs)
    return replace(link, options=options_from(stored.get("options", {})))


def _check_arguments(args: object, kwargs: object) -> None:
    """Refuse `args=(42)`, which is a number, and a text, which is many arguments."""
    if not isinstance(args, list | tuple):
        raise InvalidSchedule(
            f"args cannot be {args!r:.60}",
            cure="Give a tuple or a list, such as args=(42,).",
        )
    names = (
        list(cast("Mapping[Any, Any]", kwargs)) if isinstance(kwargs, Mapping) else [0]
    )
    if not all(isinstance(name, str) for name in names):
        raise InvalidSchedule(
            f"kwargs cannot be {kwargs!r:.60}",
            cure="Give arguments by name, such as kwargs={'user': 42}.",
        )


def _check_link(client: LinkClient, link: AnyLink) -> None:
    source = link.source
    if source is not None and source.client is not client:
        first = next((s.task for s in signatures_of(link)), "?")
        raise two_apps(first, f"{client.name}.*")
    check_whole(link, "runs by a schedule", cure="Give all its arguments.")
    if isinstance(link, PlanValue):
        _check_options(link.defaults)
        if link.size > WRITTEN_AT_ONCE_MAX:
            raise InvalidSchedule(
                f"the plan has {link.size} jobs",
                cure=f"A schedule runs plans of at most {WRITTEN_AT_ONCE_MAX} jobs: "
                "schedule a task that enqueues the plan.",
            )
        return
    _check_options(link.options)
    if link.error_handlers:
        raise InvalidSchedule(
            f"{link!r:.80} has on_error handlers, and only plans call them",
            cure="Make a plan of it: chain(signature).",
        )


def _check_options(options: CallOptions) -> None:
    for name in NOT_SCHEDULED:
        if getattr(options, name) not in {UNSET, None}:
            raise InvalidSchedule(
                f"the job of a schedule cannot have {name}=", cure=CURES[name]
            )


def link_document(link: AnyLink) -> dict[str, Any]:
    """Return the stored form; refuse arguments that are too large for a record."""
    document = link.to_dict()
    size = len(msgspec.json.encode(document))
    if size > LINK_BYTES_MAX:
        raise InvalidSchedule(
            f"the task and its arguments are {size:,} bytes",
            cure=f"A schedule stores at most {LINK_BYTES_MAX:,}: "
            + (
                "store the data, and pass its id."
                if isinstance(link, SignatureValue)
                else "schedule a task that enqueues the plan."
            ),
        )
    return document


async def check_tasks(client: LinkClient, link: AnyLink) -> None:
    """Refuse tasks that do not exist, and arguments that do not fit them."""
    for signature in signatures_of(link):
        await client.find_task(signature.task)
    tick, run_id = TickPlace("check", 0.0), client.clock.new_id()
    await ClientTickMaker(client).make(link.to_dict(), tick, run_id, 0.0)


def task_link(
    client: LinkClient,
    task: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: CallOptions,
) -> AnyLink:
    return replace(client.named(task).s(*args, **kwargs), options=options)


def edited_link(
    client: LinkClient,
    schedule: ScheduleRecord,
    task: str | None,
    given: tuple[Sequence[Any], Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> AnyLink:
    """Return the task of a schedule after an edit; what is not given stays."""
    stored = schedule.definition.link
    if task is None and "task" not in stored:
        raise InvalidSchedule(
            "the schedule runs a plan, whose jobs have their own arguments and options",
            cure="Give another plan.",
        )
    same = {} if task is not None else stored
    args, kwargs = given or (same.get("args", ()), same.get("kwargs", {}))
    chosen = options_from(same.get("options", {})).with_changes(options)
    return task_link(client, task or stored["task"], args, kwargs, chosen)

"""The flags of `durio worker` about queues: which, how many at once, in which shares."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from durio.app.app import App
from durio.model.queues import Serving, serving

Function = TypeVar("Function", bound=Callable[..., Any])


class QueueFlags(NamedTuple):
    """As given on the command line, and well formed."""

    queues: tuple[str, ...] | None  # None: every queue of the App
    weights: tuple[str, ...]
    prefetches: tuple[str, ...]  # of single queues
    concurrency: int | None

    def serving(self, *, is_strict: bool) -> Serving:
        """What they say by themselves, without the App's word."""
        return serving(
            self.queues,
            weights=self.weights,
            prefetches=self.prefetches,
            is_strict=is_strict,
        )


def queue_options(function: Function) -> Function:
    """The options of a command that takes these flags."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


OPTIONS = (
    click.option(
        "-q", "--queue", "queues", multiple=True, metavar="QUEUE[=SLOTS]",
        help="Serve this queue, at most so many of its jobs at once; may be repeated. A "
        "glob such as 'mail*' serves every queue that matches, each with these slots. "
        "Without -q: every queue of the App.",
    ),
    click.option(
        "-c", "--concurrency", type=int, metavar="N",
        help="Slots: jobs at once (10; where every -q has slots: their sum).",
    ),
    click.option(
        "--weight", "weights", multiple=True, metavar="QUEUE=N",
        help="Its share beside other queues, 1 to 1000 (1); may be repeated.",
    ),
    click.option(
        "--strict", is_flag=True,
        help="Queues in the order of -q, or as declared: the first one always first.",
    ),
    click.option(
        "--prefetch", "prefetches", multiple=True, metavar="[QUEUE=]N",
        help="Jobs held ahead of the slots, at most: of all queues (256), or of one.",
    ),
)  # fmt: skip


def read_queue_flags(given: dict[str, Any]) -> QueueFlags:
    """Take these flags out of all that was given; leave the settings they stand for."""
    prefetches: tuple[str, ...] = given.pop("prefetches")
    plain = [text for text in prefetches if "=" not in text]
    given["prefetch"] = whole_number("--prefetch", plain[-1]) if plain else None
    given["strict"] = given.pop("strict") or None
    return QueueFlags(
        queues=given.pop("queues") or None,
        weights=given.pop("weights"),
        prefetches=tuple(text for text in prefetches if "=" in text),
        concurrency=given["concurrency"],
    )


def whole_number(flag: str, text: str) -> int:
    """The number of a flag that may also name a queue."""
    try:
        return int(text)
    except ValueError:
        raise click.UsageError(
            f"{flag} {text}: give a number, or QUEUE=N for one queue."
        ) from None


def slots_of(app: App, flags: QueueFlags) -> int:
    """How many slots a worker of this App has with these flags."""
    told = serving(
        flags.queues, prefetches=flags.prefetches, declared=app.registry.queues
    )
    return told.concurrency(flags.concurrency, app.settings.worker.concurrency)

"""Check the filters for jobs, from code or the command line, and make a query of them."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, cast

import msgspec

from durio.model.errors import InvalidOption, UsageError
from durio.model.ids import id_bytes
from durio.model.job import CODE_BY_STATE, State
from durio.model.names import check_name, did_you_mean, lane, task_name
from durio.model.outcome import Reason
from durio.model.quantities import Duration, format_duration, seconds
from durio.model.query_language import JobSearchText, parse_query
from durio.ports.browse import Query

REASONS = [text for name, text in vars(Reason).items() if name.isupper()]


class TaskReference(Protocol):
    """An object with a task's name, such as a task."""

    @property
    def name(self) -> str:
        """The full name of the task."""
        ...


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of a query; a field that is None does not filter."""

    state: State | str | Iterable[State | str] | None = None
    task: TaskReference | str | None = None
    queue: str | None = None
    error: str | None = None
    reason: str | None = None
    older: Duration | None = None
    newer: Duration | None = None
    ids: Iterable[str] | None = None
    query: str | None = None  # in the query language; see `text`

    def __post_init__(self) -> None:
        """Copy an iterator's values, because a filter is used more than once."""
        for name in ("state", "ids"):
            given: Any = getattr(self, name)
            if isinstance(given, Iterator):
                kept = tuple(cast("Iterator[Any]", given))
                msgspec.structs.force_setattr(self, name, kept)

    def is_empty(self) -> bool:
        """Whether every job matches; a query in the language may have no terms."""
        fields = (name for name in self.__struct_fields__ if name != "query")
        is_plain = all(getattr(self, name) is None for name in fields)
        return is_plain and not self.text().terms

    def text(self) -> JobSearchText:
        """Return the part in the query language, parsed; raises InvalidQuery."""
        return parse_query("" if self.query is None else self.query)

    def store_query(
        self, *, app: str, namespace: str | None, now: float, dashes: str = ""
    ) -> Query:
        """Return the other filters as a query of a store; messages write `dashes` before names."""
        older, newer = self._ages(dashes)
        task = None if self.task is None else name_of_task(self.task)
        return Query(
            namespace=namespace,
            states=None if self.state is None else state_codes(self.state),
            lane=None
            if self.queue is None
            else lane(app, check_name("queue", self.queue)),
            task=None if task is None else task_name(app, check_name("task", task)),
            reason=None if self.reason is None else check_reason(self.reason),
            error=None
            if self.error is None
            else check_text(self.error, f"{dashes}error"),
            before=None if older is None else now - older,
            after=None if newer is None else now - newer,
            ids=None if self.ids is None else checked_ids(self.ids),
        )

    def _ages(self, dashes: str) -> tuple[float | None, float | None]:
        older = None if self.older is None else seconds(self.older, f"{dashes}older")
        newer = None if self.newer is None else seconds(self.newer, f"{dashes}newer")
        if older is not None and newer is not None and older >= newer:
            raise UsageError(
                f"no job is older than {format_duration(older)} and newer than "
                f"{format_duration(newer)}",
                cure=f"{dashes}older must be less than {dashes}newer.",
            )
        return older, newer


def name_of_task(given: TaskReference | str) -> str:
    """Return the name of a task, given by name or as an object with a name."""
    name: object = given if isinstance(given, str) else getattr(given, "name", None)
    if not isinstance(name, str):
        raise InvalidOption(
            f"task cannot be {given!r:.80}",
            cure="Give a task of the App, or its name: task='send'.",
        )
    return name


def state_codes(given: State | str | Iterable[State | str]) -> tuple[int, ...]:
    """Return the stored numbers of one state or of several."""
    if not isinstance(given, Iterable):
        raise not_a_state(given)
    codes: list[int] = []
    for state in [given] if isinstance(given, str) else given:
        try:
            codes.append(CODE_BY_STATE[State(state)])
        except ValueError:
            raise not_a_state(state) from None
    return tuple(codes)


def not_a_state(given: object) -> InvalidOption:
    known = [state.value for state in State]
    hint = did_you_mean(given, known) if isinstance(given, str) else ""
    return InvalidOption(
        f"there is no state {given!r}", cure=f"States: {', '.join(known)}.{hint}"
    )


def check_reason(reason: str) -> str:
    if reason not in REASONS:
        raise InvalidOption(
            f"no job is dead for the reason {reason!r}",
            cure=f"Reasons: {', '.join(REASONS)}.",
        )
    return reason


def check_text(text: str, name: str) -> str:
    try:
        text.encode()
    except (UnicodeEncodeError, AttributeError):
        text = ""
    if not text.strip() or "\0" in text:
        raise UsageError(
            f"{name} is empty or not valid text", cure="Give a part of the error."
        )
    return text


def checked_ids(ids: Iterable[str]) -> tuple[bytes, ...]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidOption(
            f"ids cannot be {ids!r}", cure="Give several ids: ids=[job.id]."
        )
    return tuple(dict.fromkeys(id_bytes(each) for each in ids))

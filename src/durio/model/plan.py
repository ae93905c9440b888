"""Signatures and plans as values: a task with its arguments, and chains and groups of them.

Users see the classes of `client/plan.py`: the same values, with types and with the calls
that enqueue them. `Complete` and `Following` are for type checkers only.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, cast

from durio.model.celery_names import PLAN_METHODS
from durio.model.errors import InvalidOption, UnknownAttribute
from durio.model.options import NO_OPTIONS, UNSET, CallOptions
from durio.model.plan_checks import (
    HANDLERS_MAX,
    MEMBERS_MAX,
    PLAN_OPTIONS,
    check_nested_options,
    check_nesting,
    check_node_options,
    check_plan_policy,
    handler_is_a_plan,
    never_fails,
    not_a_handler,
    not_a_member,
    takes_no_failure,
    tasks_of_another_app,
    too_many,
    too_many_handlers,
    two_apps,
    two_clients,
)
from durio.model.plan_document import damaged, document_of, link_from
from durio.model.signature_arguments import FIRST, Parameters

A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
SHOWN_MAX = 8  # members in a repr


class Source:
    """The App and the parameters of a task; no part of a signature's value."""

    __slots__ = ("client", "parameters")

    def __init__(self, client: Any, parameters: Parameters | None) -> None:
        self.client = client
        self.parameters = parameters  # None: the code of the task is not loaded here

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # an unpickled signature belongs to no App


class Link:
    """What signatures and plans have in common."""

    error_handlers: "tuple[SignatureValue, ...]"
    source: Source | None

    # A checker must still see that there is no such attribute.
    if not TYPE_CHECKING:  # pragma: no branch

        def __getattr__(self, name: str) -> Any:
            if name in PLAN_METHODS:
                what = f"signatures and plans have no {name}()"
                raise UnknownAttribute(what, cure=PLAN_METHODS[name])
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}",
                name=name,
                obj=self,
            )

    def to_dict(self) -> dict[str, Any]:
        """Return this as JSON values; `from_dict` makes an equal value of them."""
        return document_of(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], app: Any = None) -> Self:
        """Return the signature or plan of a document; raises InvalidPlan.

        With the App of its tasks it can be enqueued. Without, it is only a value.
        """
        source = None if app is None else Source(app, None)
        link = link_from(document, cls._classes(), source)
        if not isinstance(link, cls):
            raise damaged(f"it is a {type(link).__name__}, not a {cls.__name__}")
        return link

    @classmethod
    def _classes(cls) -> "tuple[type[SignatureValue], type[PlanValue]]":
        return SignatureValue, PlanValue

    def _with_handler(self, handler: object) -> Self:
        signature = check_handler(cast("AnyLink", self), handler)
        handlers = (*self.error_handlers, signature)
        return replace(cast("Any", self), error_handlers=handlers)


class Complete(Link, Generic[R_co]):
    """A signature or plan that has all its arguments, and gives a value of this type."""

    __module__ = "durio.plans"


class Following(Link, Generic[A_contra, R_co]):
    """A signature or plan that may follow a result of the first type."""

    __module__ = "durio.plans"


@dataclass(frozen=True, repr=False)
class SignatureValue(Link):
    """A task with its arguments and options, as a value."""

    task: str  # full name of the task
    args: tuple[Any, ...]  # positional arguments
    kwargs: Mapping[str, Any]  # keyword arguments
    options: CallOptions = NO_OPTIONS  # those of `task.options(...)`
    is_immutable: bool = False  # ignores the result before it: `task.si(...)`
    # Calls that one job makes, one after the other; None: the job makes one call.
    rows: tuple[tuple[Any, ...], ...] | None = None
    error_handlers: "tuple[SignatureValue, ...]" = ()  # those of `on_error`
    source: Source | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        named = frozenset(self.kwargs.items())
        flags = (self.is_immutable, self.rows, self.error_handlers)
        return hash((self.task, self.args, named, self.options, *flags))

    def __repr__(self) -> str:
        given = [repr(value) for value in self.args]
        given += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        method = "si" if self.is_immutable else "s"
        if self.rows is not None:
            method, given = "chunk", [f"{len(self.rows)} rows"]
        return f"{self.task}.{method}({', '.join(given)}){handlers_text(self)}"


@dataclass(frozen=True, repr=False)
class PlanValue(Link):
    """A chain or a group of signatures and plans, as a value; a chord is a chain."""

    kind: Literal["chain", "group"]  # a chord is a chain
    members: "tuple[AnyLink, ...]"  # in written order
    is_collected: bool = False  # a group with `on_error="collect"`
    cancels_rest: bool = False  # a group with `cancel_rest=True`
    error_handlers: tuple[SignatureValue, ...] = ()  # those of `on_error`
    defaults: CallOptions = NO_OPTIONS  # options for nodes that do not have their own
    size: int = field(init=False, compare=False)  # number of signatures
    depth: int = field(init=False, compare=False)  # levels of plans
    first_task: str = field(init=False, compare=False)  # name of one of its tasks
    source: Source | None = field(default=None, compare=False)  # of one of its tasks

    def __post_init__(self) -> None:
        """Check the members together, and compute what depends on all of them."""
        for member in self.members:
            check_member(member)
        plans = [link for link in self.members if isinstance(link, PlanValue)]
        size = len(self.members) + sum(plan.size - 1 for plan in plans)
        depth = 1 + max((plan.depth for plan in plans), default=0)
        if size > MEMBERS_MAX:
            raise too_many(size)
        check_nesting(depth)
        task, source = common_source(self.members)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "first_task", task)
        object.__setattr__(self, "source", source or self.source)

    def __repr__(self) -> str:
        shown = [repr(member) for member in self.members[:SHOWN_MAX]]
        if (more := len(self.members) - SHOWN_MAX) > 0:
            shown.append(f"... {more} more")
        shown += ["on_error='collect'"] if self.is_collected else []
        shown += ["cancel_rest=True"] if self.cancels_rest else []
        return f"{self.kind}({', '.join(shown)}){handlers_text(self)}"

    def _with_changes(self, given: Mapping[str, Any]) -> Self:
        for name in given:
            if name not in PLAN_OPTIONS:
                raise InvalidOption(
                    f"a plan has no option {name!r}",
                    cure=f"Options of a plan: {', '.join(PLAN_OPTIONS)}. Give others to "
                    "its tasks: task.options(...).s(...).",
                )
        changes = {name: value for name, value in given.items() if value is not UNSET}
        defaults = self.defaults.with_changes(changes)
        check_plan_policy(defaults)
        return replace(self, defaults=defaults)


AnyLink = SignatureValue | PlanValue


def signatures_of(link: AnyLink) -> list[SignatureValue]:
    """Return all signatures of a plan, its handlers included."""
    found: list[SignatureValue] = []
    waiting = [link]
    while waiting:
        link = waiting.pop()
        waiting += link.error_handlers
        if isinstance(link, SignatureValue):
            found.append(link)
        else:
            waiting += link.members
    return found


def first_signatures(link: AnyLink) -> Iterator[SignatureValue]:
    """Yield the signatures that get what stands before a plan."""
    waiting = [link]
    while waiting:
        link = waiting.pop()
        if isinstance(link, SignatureValue):
            yield link
        elif link.kind == "chain":
            waiting.append(link.members[0])
        else:
            waiting += reversed(link.members)


def why_takes_no_first(signature: SignatureValue) -> str | None:
    """Return why a signature cannot get a result as its first argument; None if it can."""
    parameters = signature.source.parameters if signature.source else None
    if signature.is_immutable or parameters is None:
        return None
    return parameters.why_unfit((FIRST, *signature.args), signature.kwargs)


def check_member(link: object) -> None:
    """Refuse what is neither a signature nor a plan, and options that it cannot have."""
    if isinstance(link, SignatureValue):
        check_node_options(link.task, link.options)
    elif isinstance(link, PlanValue):
        check_nested_options(link.defaults)
    else:
        raise not_a_member(link)


def check_handler(link: AnyLink, handler: object) -> SignatureValue:
    """Return an on_error handler of a signature or plan; refuse what cannot be one."""
    if isinstance(handler, PlanValue):
        raise handler_is_a_plan()
    if not isinstance(handler, SignatureValue):
        raise not_a_member(handler)
    check_node_options(handler.task, handler.options)
    if handler.error_handlers or handler.rows is not None:
        raise not_a_handler(repr(handler))
    if isinstance(link, PlanValue) and link.is_collected:
        raise never_fails()
    if len(link.error_handlers) >= HANDLERS_MAX:
        raise too_many_handlers()
    why = why_takes_no_first(handler)
    if why is not None:
        raise takes_no_failure(handler.task, repr(handler), why)
    common_source([link, handler])
    return handler


def common_source(links: Iterable[AnyLink]) -> tuple[str, Source | None]:
    """Return one of these tasks and their App; refuse tasks of two Apps."""
    task, source = "", None
    for link in links:
        other = link.task if isinstance(link, SignatureValue) else link.first_task
        if task and other and task.partition(".")[0] != other.partition(".")[0]:
            raise two_apps(task, other)
        if source and link.source and source.client is not link.source.client:
            raise two_clients(task, other)
        task, source = task or other, source or link.source
    return task, source


def check_app_of_tasks(link: AnyLink, app: str) -> None:
    """Refuse a plan of tasks of another App; all tasks of a plan are of one."""
    task = link.task if isinstance(link, SignatureValue) else link.first_task
    if task and task.partition(".")[0] != app:
        raise tasks_of_another_app(task, app)


def handlers_text(link: AnyLink) -> str:
    return "".join(f".on_error({handler!r})" for handler in link.error_handlers)


def is_one_job(link: AnyLink) -> bool:
    """Whether a signature, or a chain of one, is laid out as one job."""
    while (
        isinstance(link, PlanValue) and link.kind == "chain" and len(link.members) == 1
    ):
        link = link.members[0]
    return isinstance(link, SignatureValue)

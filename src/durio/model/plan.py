"""Signatures and plans as values: a task with its arguments, and chains and groups of them.

At run time every signature is a `Signature` and every plan is a `Plan`. The other classes
are never instantiated: they are the types that checkers know for signatures and plans, and
say what may follow what.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar, cast

from durio.model.errors import InvalidOption, InvalidPlan
from durio.model.keys import KeyPolicy
from durio.model.option_table import takes_options
from durio.model.options import NO_OPTIONS, UNSET, CallOptions, UniqueName
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
    takes_no_result,
    too_many,
    too_many_handlers,
    two_apps,
    two_clients,
)
from durio.model.plan_document import damaged, document_of, link_from
from durio.model.plan_ends import PlanFailure
from durio.model.signature_arguments import FIRST, Parameters
from durio.model.tx import Joinable

P = ParamSpec("P")
S = TypeVar("S")
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

    __module__ = "durio.plans"

    error_handlers: "tuple[Signature[..., Any], ...]"
    source: Source | None

    def on_error(self, handler: "Following[PlanFailure, object]", /) -> Self:
        """Return a copy whose failure enqueues this handler; several are allowed.

        The handler gets a PlanFailure as its first argument: `alert.s()`. With
        `alert.si(...)` it gets only its own arguments. Raises InvalidPlan or
        InvalidArguments if it cannot be a handler.
        """
        checked = check_handler(cast("AnyLink", self), handler)
        handlers = (*self.error_handlers, checked)
        return replace(cast("Any", self), error_handlers=handlers)

    def to_dict(self) -> dict[str, Any]:
        """Return this as JSON values; `from_dict` makes an equal value of them."""
        return document_of(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Return the signature or plan of a document; raises InvalidPlan."""
        link = link_from(document, AnySignature, plan_of)
        if not isinstance(link, cls):
            raise damaged(f"it is a {type(link).__name__}, not a {cls.__name__}")
        return link


class Complete(Link, Generic[R_co]):
    """A signature or plan that has all its arguments."""

    __module__ = "durio.plans"

    def __or__(self, following: "Following[R_co, S]") -> "Plan[S]":
        return joined(cast("AnyLink", self), following)


class Following(Link, Generic[A_contra, R_co]):
    """A signature or plan that may follow a result of this type."""

    __module__ = "durio.plans"


class Partial(Following[A_contra, R_co]):
    """A signature or plan without its first argument: it gets the result before it."""

    __module__ = "durio.plans"

    def __or__(self, following: Following[R_co, S]) -> "Partial[A_contra, S]":
        raise NotImplementedError


class Immutable(Complete[R_co], Following[object, R_co]):
    """A signature that ignores the result before it: `task.si(42)`."""

    __module__ = "durio.plans"

    def __or__(self, following: Following[R_co, S]) -> "ImmutablePlan[S]":
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Signature(Complete[R_co], Generic[P, R_co]):
    """A task with its arguments and options, as a value: `task.s(42)`.

    Signatures of equal calls are equal: `send.s("a") == send.s(address="a")`.
    """

    __module__ = "durio"

    task: str  # full name of the task
    args: tuple[Any, ...]  # positional arguments
    kwargs: Mapping[str, Any]  # keyword arguments
    options: CallOptions = NO_OPTIONS  # those of `task.options(...)`
    is_immutable: bool = False  # ignores the result before it: `task.si(...)`
    # Calls that one job makes, one after the other; None: the job makes one call.
    rows: tuple[tuple[Any, ...], ...] | None = None
    error_handlers: "tuple[Signature[..., Any], ...]" = ()  # those of `on_error`
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


class NamedSignature(Signature[..., Any], Following[object, Any]):
    """A signature of a task that is known by name only: it may stand anywhere."""

    __module__ = "durio.plans"

    def __or__(self, following: Following[Any, S]) -> "ImmutablePlan[S]":
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Plan(Complete[R_co]):
    """A chain or a group of signatures and plans, as a value; a chord is a chain."""

    kind: Literal["chain", "group"]
    members: "tuple[AnyLink, ...]"  # in written order
    is_collected: bool = False  # a group with `on_error="collect"`
    cancels_rest: bool = False  # a group with `cancel_rest=True`
    error_handlers: tuple[Signature[..., Any], ...] = ()  # those of `on_error`
    defaults: CallOptions = NO_OPTIONS  # options for nodes that do not have their own
    size: int = field(init=False, compare=False)  # number of signatures
    depth: int = field(init=False, compare=False)  # levels of plans
    first_task: str = field(init=False, compare=False)  # name of one of its tasks
    source: Source | None = field(init=False, compare=False)  # of one of its tasks

    def __post_init__(self) -> None:
        """Check the members together, and compute what depends on all of them."""
        plans = [link for link in self.members if isinstance(link, Plan)]
        size = len(self.members) + sum(plan.size - 1 for plan in plans)
        depth = 1 + max((plan.depth for plan in plans), default=0)
        if size > MEMBERS_MAX:
            raise too_many(size)
        check_nesting(depth)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "depth", depth)
        task, source = common_source(self.members)
        object.__setattr__(self, "first_task", task)
        object.__setattr__(self, "source", source)

    def __repr__(self) -> str:
        shown = [repr(member) for member in self.members[:SHOWN_MAX]]
        if (more := len(self.members) - SHOWN_MAX) > 0:
            shown.append(f"... {more} more")
        shown += ["on_error='collect'"] if self.is_collected else []
        shown += ["cancel_rest=True"] if self.cancels_rest else []
        return f"{self.kind}({', '.join(shown)}){handlers_text(self)}"

    @takes_options
    def options(
        self,
        *,
        key: str | None = UNSET,
        unique: KeyPolicy | UniqueName = UNSET,
        queue: str = UNSET,
        priority: int = UNSET,
        tx: Joinable | None = UNSET,
        meta: Mapping[str, object] | None = UNSET,
    ) -> Self:
        """Return a copy with these options; the original is unchanged.

        `queue`, `priority` and `meta` are defaults for nodes that do not have their own.
        `key`, `unique` and `tx` are for the plan as a whole. Raises InvalidOption.
        """
        raise NotImplementedError

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


Plan.__module__ = (
    "durio.plans"  # not earlier: a dataclass looks its annotations up there
)


class ImmutablePlan(Plan[R_co], Following[object, R_co]):
    """A plan whose first nodes ignore the result before it."""

    __module__ = "durio.plans"

    def __or__(self, following: Following[R_co, S]) -> "ImmutablePlan[S]":
        raise NotImplementedError


AnySignature = Signature[..., Any]
AnyPlan = Plan[Any]
AnyLink = AnySignature | AnyPlan


# --- chains and groups


def joined(before: AnyLink, following: object) -> AnyPlan:
    """Return the chain of two; plain chains among them become part of it."""
    check_member(following)
    link = cast("AnyLink", following)
    check_takes_result(link)
    return Plan("chain", (*flat("chain", [before]), *flat("chain", [link])))


def chain_of(links: Sequence[AnyLink]) -> AnyPlan:
    if not links:
        raise InvalidPlan(
            "a chain has no members", cure="Give it at least one: chain(first.s(1))."
        )
    for link in links[1:]:
        check_takes_result(link)
    return Plan("chain", tuple(flat("chain", links)))


def plan_of(kind: Any, links: Sequence[AnyLink], **fields: Any) -> AnyPlan:
    """Return a plan of a document, whose members may be of any kind."""
    for link in links:
        check_member(link)
    return Plan(kind, tuple(links), **fields)


def flat(kind: str, links: Iterable[AnyLink]) -> Iterator[AnyLink]:
    """Yield members; a plan of this kind with nothing of its own gives way to its members."""
    for link in links:
        if (
            isinstance(link, Plan)
            and link.kind == kind
            and not (link.error_handlers or link.is_collected or link.cancels_rest)
            and link.defaults == NO_OPTIONS
        ):
            yield from link.members
        else:
            yield link


def first_signatures(link: AnyLink) -> Iterator[AnySignature]:
    """Yield the signatures that get what stands before a plan."""
    waiting = [link]
    while waiting:
        link = waiting.pop()
        if isinstance(link, Signature):
            yield link
        elif link.kind == "chain":
            waiting.append(link.members[0])
        else:
            waiting += reversed(link.members)


# --- checks


def check_member(link: object) -> None:
    """Refuse what is neither a signature nor a plan, and options that it cannot have."""
    if isinstance(link, Signature):
        signature = cast("AnySignature", link)
        check_node_options(signature.task, signature.options)
    elif isinstance(link, Plan):
        check_nested_options(cast("AnyPlan", link).defaults)
    else:
        raise not_a_member(link)


def check_takes_result(link: AnyLink) -> None:
    """Refuse a plan behind another node if one of its first nodes cannot take a result."""
    for signature in first_signatures(link):
        why = why_takes_no_first(signature)
        if why is not None:
            raise takes_no_result(signature.task, repr(signature), why)


def why_takes_no_first(signature: AnySignature) -> str | None:
    parameters = signature.source.parameters if signature.source else None
    if signature.is_immutable or parameters is None:
        return None
    return parameters.why_unfit((FIRST, *signature.args), signature.kwargs)


def check_handler(link: AnyLink, handler: object) -> AnySignature:
    """Return an on_error handler of a signature or plan; refuse what cannot be one."""
    if not isinstance(handler, Signature):
        raise (
            handler_is_a_plan() if isinstance(handler, Plan) else not_a_member(handler)
        )
    signature = cast("AnySignature", handler)
    check_node_options(signature.task, signature.options)
    if signature.error_handlers or signature.rows is not None:
        raise not_a_handler(repr(signature))
    if isinstance(link, Plan) and link.is_collected:
        raise never_fails()
    if len(link.error_handlers) >= HANDLERS_MAX:
        raise too_many_handlers()
    why = why_takes_no_first(signature)
    if why is not None:
        raise takes_no_failure(signature.task, repr(signature), why)
    common_source([link, signature])
    return signature


def common_source(links: Iterable[AnyLink]) -> tuple[str, Source | None]:
    """Return one of these tasks and their App; refuse tasks of two Apps."""
    task, source = "", None
    for link in links:
        other = link.task if isinstance(link, Signature) else link.first_task
        if task and other and task.partition(".")[0] != other.partition(".")[0]:
            raise two_apps(task, other)
        if source and link.source and source.client is not link.source.client:
            raise two_clients(task, other)
        task, source = task or other, source or link.source
    return task, source


def handlers_text(link: AnyLink) -> str:
    return "".join(f".on_error({handler!r})" for handler in link.error_handlers)

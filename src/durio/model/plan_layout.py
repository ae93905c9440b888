"""Compile a plan into jobs that wait for logs and append to logs.

Nodes are numbered in written order, so the nodes of an inner plan are a range of numbers.
The ids of nodes are computed from the id of the plan. The logs of a plan are

    j:<namespace>/<plan>/<k>    results of nodes that others wait for, k = 0, 1, 2 ...
    p:<namespace>/<plan>/go     gets one entry when all nodes of a large plan are stored
    pf:<namespace>              failed nodes of all plans; the tag is the node's number
    pe:<namespace>              plans that ended well

A chain `a | b` is one log: a appends to it, b waits for it. A group is one log, too: member
i appends with tag i, and what follows waits for all of them. Where the list of a group must
become the result of one job, a node with the system task `join` follows the group. A group
that collects, behind another node, has one more: its entry says that the group has begun.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeGuard

from durio.model.logs import ANY_END, DONE_END, FAILED_END, OnEnd, Wait
from durio.model.options import NO_OPTIONS, OPTIONS, UNSET, CallOptions
from durio.model.plan import AnyLink, PlanValue, SignatureValue, is_one_job
from durio.model.plan_change import NO_ENDS, InheritedEnds
from durio.model.plan_checks import OF_THE_WHOLE_PLAN
from durio.model.plan_names import ended_log, failed_log
from durio.model.plan_place import Input

JOIN = "join"  # name of the system task that returns its input
# Nodes of a plan that is stored in one transaction. It takes 1,000 rows, and a record and
# the entries of a large shape are among them.
WRITTEN_AT_ONCE_MAX = 900


class PlanNode(NamedTuple):
    """A job of a plan."""

    number: int
    signature: SignatureValue | None  # None: the system task `join`
    options: CallOptions  # of the signature, and the defaults of plans around it
    wait: Wait | None
    on_end: tuple[OnEnd, ...]
    input: Input | None  # None: the call has only its own arguments
    scope: int | None  # number of the innermost scope
    group: int | None = None  # number of the innermost group


class PlanGroup(NamedTuple):
    """A group whose members may add others to it."""

    log: str
    is_collected: bool
    scope: int | None  # number of the innermost scope of its members
    failure_ends: tuple[OnEnd, ...]  # of its members


class PlanScope(NamedTuple):
    """A plan that changes how failures inside it are handled."""

    outer: int | None  # number of the next scope around it
    depth: int  # number of scopes around it
    first: int  # its nodes are the numbers first, first + 1, ... end - 1
    end: int
    plan: PlanValue


@dataclass
class PlanLayout:
    """The jobs of a plan, and how they depend on each other."""

    nodes: list[PlanNode]
    scopes: list[PlanScope]
    groups: list[PlanGroup]
    go: str | None  # the log that first nodes wait for; None: they wait for nothing
    failures: str  # the log of failed nodes
    added: dict[int, PlanNode] = field(default_factory=dict[int, PlanNode])

    def node(self, number: int) -> PlanNode:
        """Return a node by its number, also one that was added."""
        return self.nodes[number] if number < len(self.nodes) else self.added[number]

    def without_added(self) -> "PlanLayout":
        """Return a copy to which nodes can be added."""
        copy = replace(self, added={})
        copy.__dict__["waiters"] = self.waiters  # added nodes wait for nothing
        return copy

    def ends_of_added(self, group: int, number: int) -> tuple[OnEnd, ...]:
        """Return the ends of a node that is added to a group."""
        into = self.groups[group]
        failed = OnEnd(self.failures, FAILED_END, number)
        if into.is_collected:
            return OnEnd(into.log, ANY_END, number), failed
        return OnEnd(into.log, DONE_END, number), *into.failure_ends, failed

    def add(self, number: int, group: int, signature: SignatureValue) -> None:
        """Add a node to a group."""
        self.added[number] = PlanNode(
            number,
            signature,
            signature.options,
            None,
            self.ends_of_added(group, number),
            None,
            self.groups[group].scope,
            group,
        )

    @cached_property
    def waiters(self) -> dict[str, list[int]]:
        """The numbers of the nodes that wait for each log."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for node in self.nodes:
            if node.wait is not None:
                found[node.wait.log].append(node.number)
        return found

    def scopes_of(self, number: int) -> Iterator[int]:
        """Yield the numbers of the scopes around a node, innermost first."""
        scope = self.node(number).scope
        while scope is not None:
            yield scope
            scope = self.scopes[scope].outer


def lay_out(
    plan: AnyLink,
    plan_id: bytes,
    namespace: str,
    inherited: InheritedEnds = NO_ENDS,
) -> PlanLayout:
    """Compile a plan; `inherited` are the ends of the job whose place it takes.

    The work is linear in nodes and logs.
    """
    compiler = Compiler(plan_id, namespace, inherited.failure)
    ended = OnEnd(ended_log(namespace), DONE_END, 0)
    compiler.place_value(plan, START, (ended, *inherited.last))
    nodes, go = compiler.nodes, None
    if len(nodes) > WRITTEN_AT_ONCE_MAX:
        go = f"p:{namespace}/{plan_id.hex()}/go"
        wait = Wait(go, 0)
        nodes = [n if n.wait is not None else n._replace(wait=wait) for n in nodes]
    failures = failed_log(namespace)
    return PlanLayout(nodes, compiler.scopes, compiler.groups, go, failures)


class Before(NamedTuple):
    """What a node waits for, and the input that it then has."""

    wait: Wait | None
    input: Input | None


START = Before(None, None)


@dataclass
class GroupLog:
    """The log of a group while its members are placed."""

    log: str
    is_collected: bool
    count: int = 0  # members so far


class Compiler:
    """Places the nodes of one plan, in written order."""

    def __init__(
        self, plan_id: bytes, namespace: str, failure_ends: tuple[OnEnd, ...]
    ) -> None:
        self.nodes: list[PlanNode] = []
        self.scopes: list[PlanScope] = []
        self.groups: list[PlanGroup] = []
        self._log_prefix = f"j:{namespace}/{plan_id.hex()}/"
        self._logs = 0
        self._failures = failed_log(namespace)
        # The state at the place that is compiled now.
        self._scope: int | None = None
        self._group: int | None = None
        self._failure_ends = failure_ends  # of a member that is collected
        self._defaults = NO_OPTIONS
        self._merged: dict[int, CallOptions] = {}  # id of options -> with the defaults

    def place_value(
        self, link: AnyLink, before: Before, ends: tuple[OnEnd, ...]
    ) -> None:
        """Place a signature or plan whose value is the result of one node with these ends."""
        if isinstance(link, SignatureValue):
            self._add(link, before, ends, self._scope)
            return
        outside = self._enter(link)
        if link.kind == "chain":
            for member in link.members[:-1]:
                before = self._place(member, before)
            self.place_value(link.members[-1], before, ends)
        else:
            before = self._place_group(link, before)
            # A group collects the failures of its members, not that of its own join.
            scope = outside[0] if link.is_collected else self._scope
            self._add(None, before, ends, scope)
        self._leave(link, outside)

    def _place(self, link: AnyLink, before: Before) -> Before:
        """Place what another node follows; return what that node waits for."""
        if isinstance(link, SignatureValue):
            log = self._new_log()
            self._add(link, before, (OnEnd(log, DONE_END, 0),), self._scope)
            return Before(Wait(log, 0), Input("one", log))
        outside = self._enter(link)
        if link.kind == "chain":
            for member in link.members:
                before = self._place(member, before)
        else:
            before = self._place_group(link, before)
        self._leave(link, outside)
        return before

    def _place_group(self, group: PlanValue, before: Before) -> Before:
        kind = "collected" if group.is_collected else "list"
        log = self._new_log()
        around, self._group = self._group, len(self.groups)
        self.groups.append(
            PlanGroup(log, group.is_collected, self._scope, self._failure_ends)
        )
        count = self._place_members(group, before, GroupLog(log, group.is_collected))
        self._group = around
        if not count:
            return Before(before.wait, Input(kind, None, 0))
        above = count - 1
        if group.is_collected and before.wait is not None:
            self._add_begin(before.wait, log)
            above += 1
        return Before(Wait(log, above), Input(kind, log, count))

    def _add_begin(self, wait: Wait, log: str) -> None:
        """Add a job that says in the log of a group that the group has begun.

        A member that is cancelled or expires before that is an entry of the group. What
        follows must not run then, before what is before the group is done.
        """
        scope = None if self._scope is None else self.scopes[self._scope].outer
        nothing = Input("list", None, 0)
        self._add(None, Before(wait, nothing), (OnEnd(log, DONE_END, -1),), scope)

    def _place_members(self, group: PlanValue, before: Before, join: GroupLog) -> int:
        """Place the members of a group, and of groups that are unrolled into it."""
        for member in group.members:
            if is_unrolled(member):
                outside = self._enter(member)
                self._place_members(member, before, join)
                self._leave(member, outside)
            elif join.is_collected:
                self._place_collected(member, before, OnEnd(join.log, tag=join.count))
                join.count += 1
            else:
                ends = (OnEnd(join.log, DONE_END, join.count),)
                self.place_value(member, before, ends)
                join.count += 1
        return join.count

    def _place_collected(self, member: AnyLink, before: Before, end: OnEnd) -> None:
        """Place a member whose failure is an entry of the group's log, too."""
        around, self._failure_ends = self._failure_ends, ()
        if is_one_job(member):
            ends = (end._replace(when=ANY_END),)
        else:
            ends = (end._replace(once=True),)
            self._failure_ends = (end._replace(when=FAILED_END, once=True),)
        self.place_value(member, before, ends)
        self._failure_ends = around

    def _add(
        self,
        signature: SignatureValue | None,
        before: Before,
        ends: tuple[OnEnd, ...],
        scope: int | None,
    ) -> None:
        number = len(self.nodes)
        failed = OnEnd(self._failures, FAILED_END, number)
        given = NO_OPTIONS if signature is None else signature.options
        is_immutable = signature is not None and signature.is_immutable
        node = PlanNode(
            number,
            signature,
            self._with_defaults(given),
            before.wait,
            (*ends, *self._failure_ends, failed),
            None if is_immutable else before.input,
            scope,
            self._group,
        )
        self.nodes.append(node)

    def _new_log(self) -> str:
        self._logs += 1
        return f"{self._log_prefix}{self._logs - 1}"

    # --- plans around the place

    def _enter(self, plan: PlanValue) -> tuple[int | None, CallOptions]:
        outside = self._scope, self._defaults
        if has_scope(plan):
            outer, first = self._scope, len(self.nodes)
            depth = 0 if outer is None else self.scopes[outer].depth + 1
            self._scope = len(self.scopes)
            self.scopes.append(PlanScope(outer, depth, first, first, plan))
        if plan.defaults != NO_OPTIONS:
            self._set_defaults(merged_options(plan.defaults, self._defaults))
        return outside

    def _leave(self, plan: PlanValue, outside: tuple[int | None, CallOptions]) -> None:
        if has_scope(plan) and self._scope is not None:
            scope = self.scopes[self._scope]
            self.scopes[self._scope] = scope._replace(end=len(self.nodes))
        self._scope, defaults = outside
        if defaults is not self._defaults:
            self._set_defaults(defaults)

    def _set_defaults(self, defaults: CallOptions) -> None:
        self._defaults = defaults
        self._merged = {}

    def _with_defaults(self, options: CallOptions) -> CallOptions:
        if self._defaults is NO_OPTIONS:
            return options
        found = self._merged.get(id(options))
        if found is None:
            found = merged_options(options, self._defaults)
            self._merged[id(options)] = found
        return found


def is_unrolled(link: AnyLink) -> TypeGuard[PlanValue]:
    """Whether a group inside a group gives its members to that group.

    A group that collects, or cancels its rest, stays one member with its own list.
    """
    if isinstance(link, SignatureValue) or link.kind == "chain":
        return False
    return not (link.is_collected or link.cancels_rest)


def has_scope(plan: PlanValue) -> bool:
    return bool(plan.error_handlers or plan.is_collected or plan.cancels_rest)


def merged_options(options: CallOptions, defaults: CallOptions) -> CallOptions:
    """Return options of a node, with those of a plan where the node has none."""
    names = [name for name in OPTIONS if name not in OF_THE_WHOLE_PLAN]
    given: dict[str, Any] = {name: getattr(options, name) for name in OPTIONS}
    given = {name: value for name, value in given.items() if value is not UNSET}
    base = {name: getattr(defaults, name) for name in names}
    base = {name: value for name, value in base.items() if value is not UNSET}
    return NO_OPTIONS.with_changes(base).with_changes(given)

"""A plan as a tree of its jobs with their states, as it was written."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from durio.model.ids import id_text
from durio.model.job import STATE_BY_CODE, State
from durio.model.plan import AnyLink, PlanValue, SignatureValue
from durio.model.plan_layout import is_unrolled
from durio.model.plan_names import node_id

MEMBERS_SHOWN_MAX = 20  # of a group; a larger one has only its counts


@dataclass(frozen=True, slots=True)
class PlanTree:
    """A job, a chain or a group of a plan, with what is inside it."""

    __module__ = "durio.plans"

    kind: Literal["job", "chain", "group"]  # a chord is a chain: a group, then a job
    jobs: int  # number of jobs in it
    counts: dict[State, int]  # jobs by state
    # Of the job; of a group: of the job that joins its results, None if another one does.
    id: str | None = None
    task: str | None = None  # of the job
    state: State | None = None  # of that job; None: its record is gone
    plan: str | None = None  # id of the plan that has taken the place of that job
    members: tuple["PlanTree", ...] = ()  # in written order; those that were added last
    hidden: int = 0  # members that are not in `members`, because they are too many
    hidden_task: str | None = None  # of all members, if they are jobs of one task

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for `json.dumps`."""
        return msgspec.json.decode(msgspec.json.encode(self))


class AddedJob(NamedTuple):
    """A job that was added to a group."""

    number: int
    id: bytes
    task: str


class TreeChanges(NamedTuple):
    """What the tasks of a plan have changed."""

    added: Mapping[int, Sequence[AddedJob]] = {}  # by the number of the group
    replacing: Mapping[int, bytes] = {}  # ids of plans by the number of the node


def tree_of(
    link: AnyLink,
    plan_id: bytes,
    states: Mapping[int, int],
    changes: TreeChanges = TreeChanges(),  # noqa: B008 - never changed
    members_max: int = MEMBERS_SHOWN_MAX,
) -> PlanTree:
    """Return the tree of a plan; `states` are those of its nodes, by number."""
    builder = TreeBuilder(plan_id, states, changes, members_max)
    return builder.tree(link, is_value=True)


@dataclass(slots=True)
class TreeBuilder:
    """Visits a plan in the order in which `plan_layout` numbers its nodes and groups."""

    plan_id: bytes
    states: Mapping[int, int]
    changes: TreeChanges
    members_max: int
    number: int = field(default=0, init=False)
    group: int = field(default=0, init=False)
    is_first: bool = field(default=True, init=False)  # nothing is before this place

    def tree(self, link: AnyLink, *, is_value: bool) -> PlanTree:
        """Return a tree; `is_value`: the value of the link is the result of one job."""
        if isinstance(link, SignatureValue):
            return self._next_job(link.task)
        if link.kind == "group":
            return self._group(link, is_value=is_value)
        begin, is_first = (self.number, self.group), self.is_first
        *others, last = link.members
        members = [self._before(member, begin[0]) for member in others]
        members.append(self.tree(last, is_value=is_value))
        self.is_first = is_first
        return self._plan("chain", begin, members)

    def _before(self, link: AnyLink, begin: int) -> PlanTree:
        """Return the tree of a member of a chain that another one follows."""
        tree = self.tree(link, is_value=False)
        self.is_first = self.is_first and self.number == begin
        return tree

    def _group(
        self, group: PlanValue, *, is_value: bool, is_inner: bool = False
    ) -> PlanTree:
        """Return the tree of a group; `is_inner`: it is unrolled into another one."""
        begin = self.number, self.group
        added: Sequence[AddedJob] = ()
        if not is_inner:
            added = self.changes.added.get(self.group, ())
            self.group += 1
        size = len(group.members) + len(added)
        members: list[PlanTree] = []
        if size <= self.members_max:
            members += [self._member(member) for member in group.members]
            members += [self._job(*job) for job in added]
        else:
            self._skip_members(group)
        if not is_inner:
            self._skip_begin(group, begin[0])
        join = self._next_job(None) if is_value else None
        task = common_task(group, added) if size > len(members) else None
        return self._plan("group", begin, members, join, size - len(members), task)

    def _member(self, link: AnyLink) -> PlanTree:
        if is_unrolled(link):
            return self._group(link, is_value=False, is_inner=True)
        return self.tree(link, is_value=True)

    def _next_job(self, task: str | None) -> PlanTree:
        number = self.number
        self.number += 1
        return self._job(number, node_id(self.plan_id, number), task)

    def _job(self, number: int, job_id: bytes, task: str | None) -> PlanTree:
        counts = self._counts([number])
        state = next(iter(counts), None)
        inner = self.changes.replacing.get(number)
        plan = None if inner is None else id_text(inner)
        return PlanTree("job", 1, counts, id_text(job_id), task, state, plan)

    def _plan(
        self,
        kind: Literal["chain", "group"],
        begin: tuple[int, int],
        members: Sequence[PlanTree],
        join: PlanTree | None = None,
        hidden: int = 0,
        task: str | None = None,
    ) -> PlanTree:
        """Return a plan from the number of its first node and of its first group."""
        number, group = begin
        numbers = list(range(number, self.number))
        for within in range(group, self.group):
            numbers += [job.number for job in self.changes.added.get(within, ())]
        return PlanTree(
            kind,
            len(numbers),
            self._counts(numbers),
            None if join is None else join.id,
            state=None if join is None else join.state,
            members=tuple(members),
            hidden=hidden,
            hidden_task=task,
        )

    def _counts(self, numbers: Sequence[int]) -> dict[State, int]:
        """Return the nodes with these numbers by state."""
        found = Counter(self.states[n] for n in numbers if n in self.states)
        return {STATE_BY_CODE[code]: found[code] for code in sorted(found)}

    def _skip_begin(self, group: PlanValue, begin: int) -> None:
        """Count the job that says that a group which collects has begun."""
        has_members = self.number > begin
        self.number += group.is_collected and has_members and not self.is_first

    # --- large groups

    def _skip(self, link: AnyLink, *, is_value: bool) -> None:
        """Count the nodes and groups of a link, without a tree."""
        if isinstance(link, SignatureValue):
            self.number += 1
        elif link.kind == "group":
            begin = self.number
            self.group += 1
            self._skip_members(link)
            self._skip_begin(link, begin)
            self.number += is_value
        else:
            begin, is_first = self.number, self.is_first
            *others, last = link.members
            for member in others:
                self._skip(member, is_value=False)
                self.is_first = self.is_first and self.number == begin
            self._skip(last, is_value=is_value)
            self.is_first = is_first

    def _skip_members(self, group: PlanValue) -> None:
        for member in group.members:
            if is_unrolled(member):
                self._skip_members(member)
            else:
                self._skip(member, is_value=True)


def common_task(group: PlanValue, added: Sequence[AddedJob]) -> str | None:
    """Return the task of all members; None if they are not jobs of one task."""
    tasks = {job.task for job in added}
    for member in group.members:
        tasks.add(member.task if isinstance(member, SignatureValue) else "")
    return next(iter(tasks)) or None if len(tasks) == 1 else None

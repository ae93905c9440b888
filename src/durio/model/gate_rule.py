"""The gates of a task's jobs: a rule made at declaration, and what it says for one job.

A rule is a list of templates. A template is a gate without the key: with the values of a
job's arguments it gives the job's GateSpec, or nothing if the key is missing. Names of gates
begin with a class, which orders the gates of a job from narrow to wide, so that no job holds
a wide place while it waits for a narrow one:

- `0b:` breaker, `1k:` cap with a key, `2r:` rate or budget with a key, `3f:` fairness,
- `4w:` cap for all jobs, `5r:` rate or budget for all jobs.

Then come the App, the limit and the key: `1k:shop/send/acme`. All gates of one limit have one
prefix, which ends in a slash: `1k:shop/send/`.

A template can be published, so that programs without the task's code compute the same gates.
Functions cannot, but the template says that there is one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from durio.model.errors import InvalidArguments, InvalidName, InvalidOption, UsageError
from durio.model.gate import ATTEMPT, GATES_MAX, START, GateSpec
from durio.model.gate_keys import (
    CAP,
    FAIR,
    KEYED_CAP,
    KEYED_RATE,
    RATE,
    gate_prefix,
    key_text,
    value_at,
)
from durio.model.limits import (
    FAIR_WIDTH,
    Budget,
    Concurrency,
    KeyFunction,
    Limit,
    LimitKey,
    Rate,
    check_cost,
    is_number,
    rate_per_second,
)
from durio.model.quantities import seconds

NO_PATHS: tuple[str, ...] = ()
QUEUE_LIMIT, FAIR_LIMIT = "queue:", "fair:"  # names of limits for a whole queue
BREAKER_LIMIT = "breaker:"
RESERVED = (QUEUE_LIMIT, FAIR_LIMIT, BREAKER_LIMIT)


class GateTemplate(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One gate of a task's jobs, without the key."""

    limit: str  # its name, for people
    name: str  # of the gate, up to the key
    cap: int | None = None
    rate: float | None = None
    burst: float | None = None
    held_until: int = ATTEMPT
    paths: tuple[str, ...] = ()  # where the key is among the arguments
    cost: float = 1.0
    cost_path: str = ""  # the argument that is the cost
    is_budget: bool = False
    is_fair: bool = False  # the name goes on with queue and priority
    has_key_function: bool = False  # which only the task's code knows
    has_cost_function: bool = False


class GateChoice(NamedTuple):
    """Numbers of a limit that are used in place of those in code."""

    cap: int | None = None
    rate: float | None = None
    burst: float | None = None


class JobPlace(NamedTuple):
    """Where a new job goes, and which limits were changed by hand."""

    namespace: str
    queue: str
    priority: int
    choices: Mapping[str, GateChoice] = {}  # by the name of the limit


class GateRule(NamedTuple):
    """The gates of the jobs of one task."""

    task: str
    templates: tuple[GateTemplate, ...]
    key_functions: Mapping[str, KeyFunction] = {}  # by the name of the limit
    cost_functions: Mapping[str, KeyFunction] = {}
    # Defaults of the parameters that templates name: producers by name send none.
    defaults: Mapping[str, Any] = {}

    @property
    def has_functions(self) -> bool:
        return bool(self.key_functions or self.cost_functions)

    @property
    def roots(self) -> set[str]:
        """The parameters that the keys and costs are read from."""
        return {
            path.partition(".")[0]
            for each in self.templates
            for path in (*each.paths, each.cost_path)
            if path
        }

    def gates(self, values: Mapping[str, Any], place: JobPlace) -> tuple[GateSpec, ...]:
        """Return the gates of a job with these arguments, in the order of their names."""
        found: list[GateSpec] = []
        for template in self.templates:
            key = self._key(template, values)
            if key is not None:
                cost = self._cost(template, values)
                found.append(spec_of(template, key, cost, place))
        found.sort()
        return tuple(found)

    @property
    def has_budgets(self) -> bool:
        return any(each.is_budget for each in self.templates)

    @property
    def budget_names(self) -> frozenset[str]:
        return frozenset(each.limit for each in self.templates if each.is_budget)

    def budgets(self, gates: Sequence[GateSpec]) -> dict[str, tuple[str, float]]:
        """Return the gates among these that are budgets, and their estimates, by name."""
        return {
            each.limit: (spec.name, spec.cost)
            for each in self.templates
            for spec in gates
            if each.is_budget and spec.name.startswith(each.name)
        }

    def prefixes(self, place: JobPlace) -> list[tuple[str, str]]:
        """Return the names of the limits, each with the gate's name up to the key."""
        return [prefix_of(template, place) for template in self.templates]

    def summed(self, calls: Sequence[tuple[GateSpec, ...]]) -> tuple[GateSpec, ...]:
        """Return the gates of one job for many calls, which spend all their estimates."""
        budgets = tuple(each.name for each in self.templates if each.is_budget)
        found: list[GateSpec] = []
        for number, spec in enumerate(calls[0]):
            if budgets and spec.name.startswith(budgets):
                cost = sum(gates[number].cost for gates in calls)
                check_cost(f"{self.task}: a chunk", cost, spec.burst or cost)
                found.append(spec._replace(cost=cost))
            else:
                found.append(spec)
        return tuple(found)

    def _key(self, template: GateTemplate, values: Mapping[str, Any]) -> str | None:
        """Return the key as text; None if the job passes without this gate."""
        if template.has_key_function:
            value = self._asked(self.key_functions, template, values)
            parts: Sequence[object] = parts_of(value)
        elif template.paths:
            parts = [value_at(self._with_default(values, p), p) for p in template.paths]
        else:
            return ""
        return key_text(parts, self.task, template.limit)

    def _cost(self, template: GateTemplate, values: Mapping[str, Any]) -> float:
        if template.has_cost_function:
            cost = self._asked(self.cost_functions, template, values)
        elif template.cost_path:
            path = template.cost_path
            cost = value_at(self._with_default(values, path), path)
        else:
            return template.cost
        what = f"{self.task}: limit {template.limit!r}"
        if not is_number(cost):
            raise InvalidArguments(
                f"{what} has an estimate that is no number: {cost!r:.80}",
                cure="Nothing was stored. Give a number, 0 or more.",
                task=self.task,
            )
        return cast("float", cost)

    def _with_default(self, values: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        return values if path.partition(".")[0] in values else self.defaults

    def _asked(
        self,
        functions: Mapping[str, KeyFunction],
        template: GateTemplate,
        values: Mapping[str, Any],
    ) -> object:
        limit = template.limit
        function = functions.get(limit)
        if function is None:
            raise code_needed(self.task, limit)
        try:
            return function(values)
        except Exception as error:
            raise UsageError(
                f"{self.task}: the function of limit {limit!r} failed with "
                f"{type(error).__name__}: {error}",
                cure="Nothing was stored. Correct the function; it gets the arguments by "
                "name: lambda arguments: arguments['tenant'].",
                task=self.task,
            ) from error


def spec_of(template: GateTemplate, key: str, cost: float, place: JobPlace) -> GateSpec:
    """Return the gate of a job; a limit that was changed by hand has these numbers."""
    limit, prefix = prefix_of(template, place)
    cap, rate, burst = template.cap, template.rate, template.burst
    if place.choices and (choice := place.choices.get(limit)) is not None:
        cap, rate, burst = choice
    if template.is_budget and rate is not None and burst is not None:
        check_cost(f"budget {limit!r}", cost, burst)
    return GateSpec(prefix + key, cap, rate, burst, template.held_until, cost)


def prefix_of(template: GateTemplate, place: JobPlace) -> tuple[str, str]:
    """Return the name of the limit, and of the gate up to the key."""
    if not template.is_fair:
        return template.limit, template.name
    limit = f"{FAIR_LIMIT}{place.queue}"
    return limit, f"{gate_prefix(FAIR, place.namespace, limit)}{place.priority}/"


# --- at declaration


def gate_rule(
    task: str,
    *,
    limits: Sequence[Limit] = (),
    fair_by: LimitKey = None,
    others: Sequence[GateTemplate] = (),
) -> GateRule | None:
    """Return the rule of a task; None if its jobs pass no gates.

    `others` are gates of other features. Raises InvalidName for a name of a limit that is
    reserved, and InvalidOption if there are too many gates.
    """
    namespace, _, short = task.partition(".")
    templates, keys, costs = [*others], dict[str, Any](), dict[str, Any]()
    for number, limit in enumerate(limits, 1):
        name = limit.name or (short if number == 1 else f"{short}-{number}")
        check_reserved(task, name)
        template = template_of(limit, namespace, name)
        if callable(limit.key):
            keys[name] = limit.key
        if isinstance(limit, Budget) and callable(limit.estimate):
            costs[name] = limit.estimate
        templates.append(template)
    if fair_by is not None:
        name = f"{FAIR_LIMIT}{short}"  # of the function; that of a gate has the queue
        if callable(fair_by):
            keys[name] = fair_by
        templates.append(
            GateTemplate(
                limit=name,
                name=FAIR,
                cap=FAIR_WIDTH,
                held_until=START,
                paths=paths_of(fair_by),
                is_fair=True,
                has_key_function=callable(fair_by),
            )
        )
    check_templates(task, templates)
    return GateRule(task, tuple(templates), keys, costs) if templates else None


def template_of(limit: Limit, namespace: str, name: str) -> GateTemplate:
    """Return the gate of a limit."""
    has_key = limit.key is not None
    numbers: dict[str, Any]
    if isinstance(limit, Concurrency):
        numbers = {"cap": limit.count}
    elif isinstance(limit, Rate):
        numbers = {"rate": rate_per_second(limit.rate), "burst": float(limit.burst)}
    else:
        numbers = {
            "rate": limit.amount / seconds(limit.per, "per"),
            "burst": float(limit.amount),
            "is_budget": True,
        }
        if isinstance(limit.estimate, str):
            numbers["cost_path"] = limit.estimate
        elif callable(limit.estimate):
            numbers["has_cost_function"] = True
        else:
            numbers["cost"] = float(limit.estimate)
    kind = (KEYED_CAP, CAP) if isinstance(limit, Concurrency) else (KEYED_RATE, RATE)
    return GateTemplate(
        limit=name,
        name=gate_prefix(kind[0] if has_key else kind[1], namespace, name),
        paths=paths_of(limit.key),
        has_key_function=callable(limit.key),
        **numbers,
    )


def paths_of(key: LimitKey) -> tuple[str, ...]:
    if isinstance(key, str):
        return (key,)
    return NO_PATHS if key is None or callable(key) else key


def parts_of(value: object) -> Sequence[object]:
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)


def check_reserved(task: str, name: str) -> None:
    """Refuse names that limits of queues and breakers have."""
    prefix = next((each for each in RESERVED if name.startswith(each)), None)
    if prefix is not None:
        raise InvalidName(
            f"task {task} cannot have a limit of the name {name!r}: names that begin with "
            f"{prefix!r} are reserved",
            cure=f"Give the limit another name: name={name.replace(':', '-')!r}.",
        )


def check_templates(task: str, templates: Sequence[GateTemplate]) -> None:
    """Refuse more gates than a job can pass, and one limit twice."""
    if len(templates) > GATES_MAX:
        listed = ", ".join(each.limit for each in templates)
        raise InvalidOption(
            f"task {task} has {len(templates)} limits: {listed}",
            cure=f"A job passes at most {GATES_MAX}, with breaker= and fair_by=. Leave "
            "out those that another one includes.",
            option="limits",
        )
    names = [each.limit for each in templates]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidOption(
            f"task {task} has the limit {twice!r} twice: no job could meet both",
            cure="Give each limit of a task its own name=.",
            option="limits",
        )


# --- published, for programs without the task's code


def published_rule(rule: GateRule | None) -> dict[str, Any]:
    """Return the field of a published task that says which gates its jobs pass."""
    if rule is None:
        return {}
    described: dict[str, Any] = {"gates": msgspec.to_builtins(rule.templates)}
    if rule.defaults:
        described["defaults"] = dict(rule.defaults)
    return {"limits": described}


def rule_of_published(task: str, limits: Any) -> GateRule | None:
    """Return the rule that `published_rule` described; None if there is none.

    Raises UsageError for one that this version cannot read: the job would pass its limits.
    """
    if limits is None:
        return None
    try:
        templates = msgspec.convert(limits["gates"], tuple[GateTemplate, ...])
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise UsageError(
            f"the published limits of task {task} cannot be read: {error}",
            cure="Update durio in this program to the version of the workers.",
            task=task,
        ) from None
    return GateRule(task, templates, defaults=limits.get("defaults", {}))


def code_needed(task: str, limit: str) -> UsageError:
    return UsageError(
        f"{task}: limit {limit!r} has a function as its key or estimate, and this program does not have "
        "the task's code",
        cure="Import the task and enqueue it there, or name a parameter: key='tenant'.",
        task=task,
    )

"""The limits that the tasks of an App declare: each name once, with one meaning."""

from collections.abc import Sequence
from inspect import Parameter
from typing import Any

import msgspec

from durio.model.argument_codec import NAMED, ArgumentCodec
from durio.model.breaker import breaker_gate
from durio.model.codec import encoder
from durio.model.errors import InvalidOption
from durio.model.gate_rule import BREAKER_LIMIT, GateRule, GateTemplate, gate_rule
from durio.model.names import did_you_mean
from durio.model.options import UNSET, CallOptions


class DeclaredLimits:
    """Makes the gate rules of tasks, and refuses limits that contradict each other."""

    def __init__(self) -> None:
        self.templates: dict[str, GateTemplate] = {}  # by the name of the limit
        self.tasks: dict[str, list[str]] = {}  # that declare it
        self._unshared: set[str] = set()  # named after their task

    def rule_of(
        self, task: str, options: CallOptions, codec: ArgumentCodec
    ) -> GateRule | None:
        """Return the rule of a new task; None if its jobs pass no gates."""
        given_options = (options.limits, options.fair_by, options.breaker)
        if all(each is UNSET for each in given_options):
            return None
        limits = () if options.limits is UNSET else options.limits
        fair_by = None if options.fair_by is UNSET else options.fair_by
        others = () if options.breaker is UNSET else (breaker_template(task, options),)
        rule = gate_rule(task, limits=limits, fair_by=fair_by, others=others)
        if rule is None:
            return None
        self._check_parameters(rule, codec)
        given = {limit.name for limit in limits if limit.name is not None}
        for template in rule.templates:
            if not template.is_fair and template not in others:
                self._add(task, template, is_given=template.limit in given)
        return rule._replace(defaults=published_defaults(rule, codec))

    def _add(self, task: str, template: GateTemplate, *, is_given: bool) -> None:
        name = template.limit
        known = self.templates.setdefault(name, template)
        tasks = self.tasks.setdefault(name, [])
        tasks.append(task)
        first = tasks[0]
        if not is_given:
            self._unshared.add(name)
        may_share = name not in self._unshared and is_same(known, template)
        if first != task and not may_share:
            raise InvalidOption(
                f"tasks {first} and {task} have different limits of the name {name!r}: no job "
                "could meet both",
                cure=f"Give both tasks one limit with name={name!r}, or give them different "
                "names.",
                option="limits",
            )

    def _check_parameters(self, rule: GateRule, codec: ArgumentCodec) -> None:
        parameters = codec.bindable.parameters
        if any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values()):
            return
        names = [p.name for p in parameters.values() if p.kind in NAMED]
        for root in sorted(rule.roots - {*names}):
            raise InvalidOption(
                f"task {rule.task} has a limit by {root!r}, which is no parameter of it",
                cure=f"It takes {codec.bindable}.{did_you_mean(root, names)}",
                option="limits",
            )


def breaker_template(task: str, options: CallOptions) -> GateTemplate:
    """Return the gate of a breaker: without a cap or a rate it has no row while closed."""
    namespace, _, _ = task.partition(".")
    return GateTemplate(
        limit=f"{BREAKER_LIMIT}{options.breaker}",
        name=breaker_gate(namespace, options.breaker),
    )


def is_same(one: GateTemplate, other: GateTemplate) -> bool:
    """Whether two templates are one limit; each task has its own arguments."""
    return shared_part(one) == shared_part(other)


def shared_part(template: GateTemplate) -> Sequence[object]:
    numbers = (template.cap, template.rate, template.burst, template.held_until)
    return (template.name, *numbers)


def published_defaults(rule: GateRule, codec: ArgumentCodec) -> dict[str, Any]:
    """Return the defaults of the parameters that the rule reads, as JSON values."""
    found: dict[str, Any] = {}
    for root in rule.roots:
        parameter = codec.bindable.parameters.get(root)
        default = Parameter.empty if parameter is None else parameter.default
        if default is not Parameter.empty and default is not None:
            found[root] = msgspec.json.decode(encoder.encode(default))
    return found

"""The gates of a new job: from the rule of its task, its arguments, and its queue."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from durio.client.routing import Target, named_values
from durio.model.argument_codec import ArgumentCodec
from durio.model.codec import encoder
from durio.model.errors import UsageError
from durio.model.gate import GATES_MAX, GateSpec
from durio.model.gate_rule import GateRule, JobPlace
from durio.model.options import row_options
from durio.model.plan import SignatureValue


def gates_of_call(
    rule: GateRule,
    target: Target,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    place: JobPlace,
) -> tuple[GateSpec, ...]:
    """Return the gates of a job with these arguments."""
    return rule.gates(limit_values(rule, target, args, kwargs), place)


def gates_of_signature(
    rule: GateRule,
    target: Target,
    signature: SignatureValue,
    place: JobPlace,
    *,
    is_following: bool,
) -> tuple[GateSpec, ...]:
    """Return the gates of a job of a plan; with `is_following` its first argument is missing."""
    args, kwargs = signature.args, signature.kwargs
    if signature.rows is not None:
        return gates_of_chunk(rule, target, signature.rows, place)
    if not is_following:
        return gates_of_call(rule, target, args, kwargs, place)
    check_following(target)
    values = named_values(target, args, kwargs, is_following=True)
    return rule.gates(values, place)


def check_following(target: Target) -> None:
    """Refuse a limit that reads the first argument, when that is not known at the enqueue."""
    rule, first = target.gate_rule, first_parameter(target)
    if rule is not None and first in rule.roots:
        raise UsageError(
            f"{rule.task}: a limit reads the argument {first!r}, which is the result of the "
            "job before it in the plan",
            cure="Give that argument by .si(...), or let the limit read another one.",
            task=rule.task,
        )


def gates_of_chunk(
    rule: GateRule,
    target: Target,
    rows: Sequence[Sequence[Any]],
    place: JobPlace,
) -> tuple[GateSpec, ...]:
    """Return the gates of a job that makes many calls; they must be those of each call."""
    found = [gates_of_call(rule, target, row, {}, place) for row in rows]
    names = {tuple(spec.name for spec in gates) for gates in found}
    if len(names) > 1:
        one, other, *_ = sorted(names)
        raise UsageError(
            f"{rule.task}: the calls of one chunk have different limits: {one} and {other}",
            cure="Make chunks of calls with the same key.",
            task=rule.task,
        )
    return rule.summed(found)


def limit_values(
    rule: GateRule, target: Target, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the arguments by name; typed as the task gets them if a function reads them."""
    codec = target.codec
    if isinstance(codec, ArgumentCodec) and not rule.has_functions:
        return codec.bind(args, kwargs)[1]
    return named_values(target, args, kwargs, is_following=False)


def first_parameter(target: Target) -> str | None:
    """Return the name of the parameter that takes the result before it."""
    codec = target.codec
    if isinstance(codec, ArgumentCodec):
        return next(iter(codec.bindable.parameters), None)
    parameters = (codec.published or {}).get("parameters", [])
    return parameters[0]["name"] if parameters else None


def with_queue_gates(
    gates: tuple[GateSpec, ...], of_queue: tuple[GateSpec, ...], task: str
) -> tuple[GateSpec, ...]:
    """Return the gates with those of the queue, which an operator has set."""
    found = tuple(sorted((*gates, *of_queue)))
    if len(found) > GATES_MAX:
        listed = ", ".join(spec.name for spec in found)
        raise UsageError(
            f"a job of {task} would pass {len(found)} limits: {listed}",
            cure=f"A job passes at most {GATES_MAX}. Remove the limit of the queue "
            "(durio limits reset), or one of the task.",
            task=task,
        )
    return found


def with_budgets(
    opts: bytes | None, rule: GateRule | None, gates: Sequence[GateSpec]
) -> bytes | None:
    """Return the stored options with the budgets that the task reports its spending to."""
    budgets = {} if rule is None else rule.budgets(gates)
    if not budgets:
        return opts
    return encoder.encode(msgspec.structs.replace(row_options(opts), budgets=budgets))

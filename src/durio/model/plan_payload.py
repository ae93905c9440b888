"""What is stored with a plan node: its arguments, and its place in the plan."""

from typing import Any

import msgspec

from durio.model.argument_codec import ArgumentCodec, Arguments
from durio.model.codec import UNREADABLE, encoder
from durio.model.errors import (
    InvalidArguments,
    InvalidOption,
    InvalidPlan,
    KeyConflict,
)
from durio.model.failure import ShortFailure
from durio.model.ids import id_text
from durio.model.job import NewJob, StoredJob
from durio.model.options import NO_ROW_OPTIONS, row_options
from durio.model.plan import SignatureValue
from durio.model.plan_change import ADDED_FROM
from durio.model.plan_ends import PlanFailure
from durio.model.plan_place import PlanPlace

_decoder = msgspec.json.Decoder(tuple[list[msgspec.Raw], msgspec.Raw])
_values = msgspec.json.Decoder(tuple[list[Any], dict[str, Any]])


def with_first(payload: bytes, value: bytes) -> bytes:
    """Return the payload of a call with one more argument before the others."""
    args, kwargs = _decoder.decode(payload)
    return encoder.encode(([msgspec.Raw(value), *args], kwargs))


def failure_payload(
    handler: SignatureValue, plan_id: bytes, node: StoredJob, failure: ShortFailure
) -> bytes:
    """Return the payload of an error handler: it gets a PlanFailure first."""
    payload = encoder.encode((handler.args, handler.kwargs))
    if handler.is_immutable:
        return payload
    try:
        args, kwargs = _values.decode(node.payload)
    except msgspec.DecodeError:
        args, kwargs = [], {}  # a chunk, or damaged
    argument = PlanFailure(
        plan=id_text(plan_id),
        node=id_text(node.id),
        task=node.task,
        error_type=failure.type,
        text=failure.message,
        args=args,
        kwargs=kwargs,
    )
    return with_first(payload, msgspec.json.encode(argument))


def decode_chunk(codec: ArgumentCodec, payload: bytes) -> list[Arguments]:
    """Decode the calls of a chunk; raises InvalidArguments."""
    try:
        calls = msgspec.json.decode(payload, type=list[msgspec.Raw])
    except UNREADABLE as error:
        raise InvalidArguments(
            f"{codec.task}: the payload is not a list of calls: {error}",
            cure="Enqueue through Durio: task.chunks(rows, 100).",
        ) from None
    return [codec.decode(bytes(call)) for call in calls]


def placed_options(stored: bytes | None, place: PlanPlace) -> bytes:
    """Return the options of a job with another place in a plan."""
    options = NO_ROW_OPTIONS if stored is None else row_options(stored)
    return encoder.encode(msgspec.structs.replace(options, plan=place))


def plan_place_of(stored: bytes | None) -> PlanPlace | None:
    """Return a job's place in a plan; None if it has none, or its options are damaged."""
    if stored is None or b'"plan":' not in stored:
        return None
    try:
        return row_options(stored).plan
    except InvalidOption:
        return None  # an attempt reports it


def node_key_taken(node: NewJob, holder: str, cure: str) -> KeyConflict:
    """Return the error of a plan that is refused: another job has the key of a node."""
    key = row_options(node.opts).key
    return KeyConflict(
        f"the plan was not stored: job {holder} has the key {key!r} of {node_text(node)}",
        cure=cure,
        id=holder,
        node=id_text(node.id),
        key=key,
    )


def same_key_twice(node: NewJob, other: NewJob) -> InvalidPlan:
    key = row_options(node.opts).key
    return InvalidPlan(
        f"{node_text(node)} and {node_text(other)} of the plan have the same key {key!r}",
        cure="Give each node its own key.",
    )


def node_text(node: NewJob) -> str:
    """Return the number and the task of a node, for messages."""
    place = row_options(node.opts).plan
    if place is None or place.node >= ADDED_FROM:
        return f"an added member ({node.task})"
    return f"node {place.node} ({node.task})"

"""The key of a plan: a record with the hash of the key, which names the plan.

`window`: for its time, a second enqueue returns the handle of the same plan; with other
arguments it is a KeyConflict. `while_active`: it does so until that plan has ended.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from durio.model.effects import Put
from durio.model.errors import InvalidOption, KeyConflict
from durio.model.ids import id_bytes, id_text
from durio.model.job import NewJob
from durio.model.keys import WINDOW, KeyPolicy, key_hash, window
from durio.model.option_values import check_unique
from durio.model.options import UNSET, CallOptions
from durio.model.plan_record import PlanHolder, plan_key_kind
from durio.model.tx import Joinable
from durio.ports.plan_reader import StoredPlan, find_plan
from durio.ports.plan_sweep import current_state
from durio.ports.store import Store


class PlanKey(NamedTuple):
    """The key of one plan that is being enqueued."""

    namespace: str
    key: str  # as the caller gave it
    policy: KeyPolicy
    plan_id: bytes
    digest: str  # of its shape and arguments

    @property
    def name(self) -> str:
        """The name of the record."""
        return key_hash(f"{self.namespace}.~plan", self.key).hex()

    async def holder(self, store: Store) -> PlanHolder | Put:
        """Return the plan that has the key, or the write that takes the key.

        Raises KeyConflict if a plan with other arguments has it.
        """
        kind = plan_key_kind(self.namespace)
        found = await store.records(kind, [self.name])
        version = 0
        if found:
            holder = msgspec.json.decode(found[0].body, type=PlanHolder)
            if self.policy.mode == WINDOW and holder.digest != self.digest:
                raise self._conflict(holder.plan)
            if await self._is_held(store, id_bytes(holder.plan)):
                return holder
            version = found[0].version
        body = msgspec.json.encode(PlanHolder(id_text(self.plan_id), self.digest))
        seconds = self.policy.ttl_seconds if self.policy.mode == WINDOW else None
        return Put(kind, self.name, body, if_version=version, ttl_seconds=seconds)

    async def _is_held(self, store: Store, plan_id: bytes) -> bool:
        if self.policy.mode == WINDOW:
            return True
        plan = await find_plan(store, self.namespace, plan_id)
        return plan is not None and not (await current_state(store, plan)).is_final

    def _conflict(self, plan: str) -> KeyConflict:
        return KeyConflict(
            f"plan {plan} has the key {self.key!r}, with other arguments",
            cure="Use another key for other arguments, or wait until the window ends.",
            id=plan,
        )


async def other_holder(store: Store, plan: StoredPlan) -> str | None:
    """Return the id of another plan that has the key of this one and has not ended."""
    key, kind = plan.record.key, plan_key_kind(plan.namespace)
    for record in await store.records(kind, [key]) if key else ():
        holder = msgspec.json.decode(record.body, type=PlanHolder).plan
        other = await find_plan(store, plan.namespace, id_bytes(holder))
        if other is None or other.id == plan.id:
            continue
        if not (await current_state(store, other)).is_final:
            return holder
    return None


def plan_key(
    namespace: str,
    options: CallOptions,
    plan_id: bytes,
    shape: object,
    jobs: Sequence[NewJob],
    tx: Joinable | None,
) -> PlanKey | None:
    """Return the key of a plan; None if it has none. Raises InvalidOption."""
    if options.key is UNSET or options.key is None:
        return None
    policy = window() if options.unique is UNSET else check_unique(options.unique)
    if tx is not None and policy.mode != WINDOW:
        raise InvalidOption(
            f"a plan with tx cannot have unique={policy.name}",
            cure="Use window() of durio.keys, or enqueue the plan without tx.",
        )
    digest = blake2b(msgspec.json.encode(shape), digest_size=16)
    for job in jobs:
        digest.update(job.payload + b"\0")
    return PlanKey(namespace, options.key, policy, plan_id, digest.hexdigest())

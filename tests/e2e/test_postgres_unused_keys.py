"""The walk over keys that were left behind: a few at a time, however many windows there are."""

import asyncio

import pytest

from durio.stores.postgres import keys
from tests.conformance.postgres import ScratchSchema
from tests.e2e.open_transaction import opened

STEP = 3
# Windows, and among them keys whose holder is over: the first behind two steps of windows.
FILL = """
insert into {schema}.uniq (key, id, mode, digest, until)
select decode(lpad(to_hex(n), 2, '0'), 'hex'), gen_random_uuid(), 1, 'x',
  case when n not in (8, 9, 11) then 1e12 end
from generate_series(1, 11) n
"""
STRAYS = "select get_byte(key, 0) from {schema}.uniq where until is null order by key"


def test_a_step_looks_at_a_few_keys_whatever_they_are(
    grounds: ScratchSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "UNUSED_BATCH_MAX", STEP)

    async def story() -> None:
        async with opened(grounds.location) as store:
            await store.context.connections.write_one(FILL)
            walk, seen = store.context.process.unused_keys, list[object]()
            for _ in range(5):
                walk.next_at = 0.0
                await keys.free_unused_keys(store.context)
                strays = [
                    key for (key,) in await store.context.connections.read(STRAYS)
                ]
                seen.append((walk.after, strays))
            assert seen == [
                (b"\x03", [8, 9, 11]),
                (b"\x06", [8, 9, 11]),
                (b"\x09", [11]),
                (b"", []),  # and from the beginning
                (b"\x03", []),
            ]

    asyncio.run(story())

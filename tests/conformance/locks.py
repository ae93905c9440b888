"""What locks need of a store: one holder at a time, with tokens that grow."""

import asyncio

from durio.client.held_record import HeldRecord
from durio.model.effects import Effects, Put
from durio.model.lock import HELD_SECONDS
from durio.ports.store import Store
from tests.conformance.promises import Chapter
from tests.conformance.scene import Scene

chapter = Chapter("locks")

KIND = "test:shop"


def held(scene: Scene, store: Store | None = None) -> HeldRecord:
    return HeldRecord(store or scene.store, scene.clock, KIND, "invoice:42")


async def taken(scene: Scene, body: bytes, store: Store | None = None) -> HeldRecord:
    one = held(scene, store)
    assert await one.take(body) is None
    return one


@chapter.promise("M94", "M102")
async def one_of_many_takes_a_lock(scene: Scene) -> None:
    """They try at the same time, from two processes; each round has one holder."""
    other = await scene.other()
    tokens: list[int] = []
    for round_ in range(10):
        tries = [held(scene, (scene.store, other)[n % 2]) for n in range(8)]
        bodies = [b"%d/%d" % (round_, n) for n in range(8)]
        standing = await asyncio.gather(
            *(one.take(body) for one, body in zip(tries, bodies, strict=True))
        )
        holders = [
            one for one, record in zip(tries, standing, strict=True) if record is None
        ]
        (holder,) = holders
        body = bodies[tries.index(holder)]
        assert {record.body for record in standing if record is not None} == {body}
        tokens.append(holder.token)
        assert await holder.renew()
        assert await holder.end(None)
    assert tokens == sorted(set(tokens))


@chapter.promise("M102", "M121", "L15")
async def a_holder_that_was_paused_is_replaced_and_refused(scene: Scene) -> None:
    """The next holder has a greater token; the first one cannot renew or end anything."""
    other = await scene.other()
    first = await taken(scene, b"first")
    scene.clock.advance(HELD_SECONDS - 1)
    assert await first.renew()
    scene.clock.advance(HELD_SECONDS - 1)
    assert first.is_held
    assert await held(scene, other).take(b"second") is not None
    scene.clock.advance(1)
    assert not first.is_held
    second = await taken(scene, b"second", other)
    assert second.token > first.token
    assert not await first.renew()
    assert not await first.end(None)
    assert second.is_held
    assert await second.renew()
    assert await second.end(None)


@chapter.promise()
async def a_lock_that_ran_out_is_not_renewed(scene: Scene) -> None:
    """Also when nobody has taken it: another may have had it in between."""
    first = await taken(scene, b"first")
    scene.clock.advance(HELD_SECONDS)
    assert not await first.renew()
    assert not await first.end(None)


@chapter.promise()
async def a_lost_reply_is_found_again(scene: Scene) -> None:
    """The record has the body of the holder: a take, a renewal and an end are repeated."""
    lost = await taken(scene, b"first")
    again = held(scene)
    assert await again.take(b"first") is None
    assert again.token == lost.token
    assert await again.renew()
    assert await lost.renew()
    assert await again.end(b"done", 60.0)
    assert await lost.end(b"done", 60.0)
    (record,) = await scene.store.records(KIND, ["invoice:42"])
    assert record.body == b"done"
    scene.clock.advance(60.0)
    assert await scene.store.records(KIND, ["invoice:42"]) == []


@chapter.promise()
async def a_token_never_comes_back(scene: Scene) -> None:
    """Not after the record is deleted, and not after it has expired."""
    last = 0
    for _ in range(3):
        one = await taken(scene, b"one")
        assert one.token > last
        last = one.token
        delete = Put(KIND, "invoice:42", None)
        await scene.store.commit(Effects(puts=[delete]))
        two = await taken(scene, b"two")
        assert two.token > last
        last = two.token
        scene.clock.advance(HELD_SECONDS)

"""What a store promises about live events: subscribers get them, publishers never wait."""

from typing import Any

import msgspec

from tests.conformance.promises import Chapter
from tests.conformance.scene import Scene

chapter = Chapter("live")

LONG_SECONDS = 20.0
# Publishers need not look for subscribers more often than this.
GLANCE_SECONDS = 1.5


def event(n: int, size: int = 0) -> bytes:
    """Return one JSON object of this size."""
    return msgspec.json.encode({"event": "job.done", "n": n, "fill": "x" * size})


@chapter.promise()
async def events_are_heard_by_everybody_who_listens(scene: Scene) -> None:
    """They arrive in order, from every process, from the moment of the subscription."""
    other = await scene.other()
    other.publish([event(0)])
    async with scene.store.subscribe() as one, other.subscribe() as two:
        scene.clock.advance(GLANCE_SECONDS)
        assert scene.store.publish([])
        assert other.publish([])
        other.publish([event(1), event(2)])
        scene.store.publish([event(3)])
        for listener in (one, two):
            heard: list[bytes] = []
            while len(heard) < 3:
                heard += await listener.read(LONG_SECONDS)
            assert heard == [event(1), event(2), event(3)]


@chapter.promise()
async def nobody_is_heard_when_nobody_listens(scene: Scene) -> None:
    """Publishing is no error then, nor without events."""
    assert not scene.store.publish([])
    scene.store.publish([event(1)])
    async with scene.store.subscribe() as listener:
        scene.clock.advance(GLANCE_SECONDS)
        assert (await scene.other()).publish([])
        scene.store.publish([])
        assert await listener.read(0.01) == []
    scene.clock.advance(GLANCE_SECONDS)
    assert not scene.store.publish([])
    assert not (await scene.other()).publish([])
    scene.store.publish([event(1)])


@chapter.promise()
async def a_slow_listener_keeps_nobody_waiting(scene: Scene) -> None:
    """It misses events, in order, and gets their number."""
    told = 50_000
    async with scene.store.subscribe() as listener:
        scene.clock.advance(GLANCE_SECONDS)
        assert scene.store.publish([])
        for n in range(0, told, 100):
            scene.store.publish([event(n + m, 100) for m in range(100)])
        heard: list[dict[str, Any]] = []
        while more := await listener.read(0.05):
            heard += [msgspec.json.decode(line) for line in more]
        # The next event that arrives brings the number of missed ones.
        scene.store.publish([event(told)])
        while more := await listener.read(0.05):
            heard += [msgspec.json.decode(line) for line in more]
    numbers: list[int] = [one["n"] for one in heard if "n" in one]
    missing: list[int] = [one["events"] for one in heard if "events" in one]
    assert numbers == sorted(set(numbers))
    assert 0 < len(numbers) < told
    assert len(numbers) + sum(missing) == told + 1
    assert numbers[-1] == told


@chapter.promise()
async def an_event_that_is_too_long_spoils_no_other(scene: Scene) -> None:
    """It is missed; the events around it arrive."""
    async with scene.store.subscribe() as listener:
        scene.clock.advance(GLANCE_SECONDS)
        assert scene.store.publish([])
        scene.store.publish([event(1), event(2, 10**6), event(3)])
        heard: list[bytes] = []
        while event(3) not in heard:
            heard += await listener.read(LONG_SECONDS)
    assert event(1) in heard
    assert len(heard) in (3, 4)

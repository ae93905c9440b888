"""What a store promises about records: versions, expiry, due times, lists."""

import math
from typing import Any

from durio.model.effects import Effects, Put
from durio.model.errors import UsageError
from durio.ports.commit import Committed
from durio.ports.records import BEYOND_ALL_NAMES, Record
from tests.conformance.promises import Chapter
from tests.conformance.scene import MANY, Scene

chapter = Chapter("records")

KIND = "test:shop"


async def put(scene: Scene, *puts: Put) -> list[int]:
    """Write records; no condition may fail."""
    committed = await scene.store.commit(Effects(puts=puts))
    assert committed.conflict is None
    return committed.versions


async def names(scene: Scene, **options: Any) -> list[str]:
    """Return the names of a list of records."""
    found = await scene.store.list_records(KIND, **options)
    return [record.name for record in found]


@chapter.promise()
async def a_record_is_read_as_it_was_written(scene: Scene) -> None:
    """This and another process read it; absent names are left out."""
    body = bytes(range(256))
    (one, two) = await put(
        scene, Put(KIND, "b", body, due_at=17.5), Put(KIND, "a/\u00fc", b"")
    )
    other = await scene.other()
    assert await other.records(KIND, ["a/\u00fc", "none", "b"]) == [
        Record(KIND, "a/\u00fc", b"", None, two),
        Record(KIND, "b", body, 17.5, one),
    ]
    assert await other.records("test:bank", ["b"]) == []
    assert await other.records(KIND, []) == []


@chapter.promise()
async def a_put_may_ask_for_a_version(scene: Scene) -> None:
    """If the record has another version, the conflict contains it."""
    (first,) = await put(scene, Put(KIND, "a", b"1", if_version=0))
    (second,) = await put(scene, Put(KIND, "a", b"2", if_version=first))
    assert second > first > 0
    stands = Record(KIND, "a", b"2", None, second)
    for stale in (0, first, second + 1):
        answer = await refused(scene, Put(KIND, "a", b"3", if_version=stale))
        assert answer.conflict is not None
        assert answer.conflict[:3] == ("record", "a", stands)
    for version in (first, second):
        answer = await refused(scene, Put(KIND, "b", b"3", if_version=version))
        assert answer.conflict is not None
        assert answer.conflict[:3] == ("record", "b", None)
    (third,) = await put(scene, Put(KIND, "a", b"3"))
    assert third > second


async def refused(scene: Scene, *puts: Put) -> Committed:
    """Return the result of a commit that changes nothing."""
    before = await scene.everything()
    answer = await (await scene.other()).commit(Effects(puts=puts))
    assert answer.conflict is not None
    assert answer[:2] == ([], [])
    assert await scene.everything() == before
    return answer


@chapter.promise()
async def a_record_can_be_deleted(scene: Scene) -> None:
    """This works with or without a version; deleting an absent record is no conflict."""
    (version, _) = await put(scene, Put(KIND, "a", b"1"), Put(KIND, "b", b"1"))
    await refused(scene, Put(KIND, "a", None, if_version=version + 7))
    await refused(scene, Put(KIND, "a", None, if_version=0))
    gone = (Put(KIND, "a", None, if_version=version), Put(KIND, "b", None))
    assert await put(scene, *gone, Put(KIND, "c", None)) == [0, 0, 0]
    assert await put(scene, Put(KIND, "a", None, if_version=0)) == [0]
    assert await names(scene) == []


@chapter.promise()
async def a_version_is_never_used_again(scene: Scene) -> None:
    """It is not used by another record, nor by a name that was deleted or has expired."""
    seen: list[int] = []
    for turn in range(3):
        seen += await put(
            scene,
            Put(KIND, "a", b"1", if_version=0),
            Put("test:bank", "a", b"1", if_version=0, ttl_seconds=10.0),
        )
        if turn == 1:
            scene.clock.advance(11.0)
            await scene.store.prune(MANY, dead_count=0)
            await put(scene, Put(KIND, "a", None))
        else:
            await put(scene, Put(KIND, "a", None), Put("test:bank", "a", None))
    assert len(set(seen)) == 6
    assert max(seen[:2]) < min(seen[2:4])
    assert max(seen[2:4]) < min(seen[4:])


@chapter.promise()
async def an_expired_record_is_absent(scene: Scene) -> None:
    """It is absent for reads, lists, due times and `if_version=0`, before and after upkeep."""
    for prunes in (False, True):
        (version, _) = await put(
            scene,
            Put(KIND, "a", b"1", if_version=0, ttl_seconds=10.0, due_at=1.0),
            Put(KIND, "b", b"1", ttl_seconds=20.0, due_at=1.0),
        )
        scene.clock.advance(9.9)
        assert await names(scene) == ["a", "b"]
        scene.clock.advance(0.2)
        if prunes:
            assert await scene.store.prune(MANY, dead_count=0) == 0
        assert await names(scene) == ["b"]
        assert await scene.store.records(KIND, ["a"]) == []
        due = await scene.store.due_records(KIND, limit=9)
        assert [record.name for record in due.records] == ["b"]
        await refused(scene, Put(KIND, "a", b"2", if_version=version))
        (again,) = await put(scene, Put(KIND, "a", b"2", if_version=0))
        assert again > version
        scene.clock.advance(100.0)
        assert await names(scene) == ["a"]  # the new record has no expiry
        await put(scene, Put(KIND, "a", None))


@chapter.promise()
async def upkeep_deletes_a_bounded_number(scene: Scene) -> None:
    """Valid records are kept; a put without an expiry removes it."""
    await put(scene, *(Put(KIND, f"{n}", b"", ttl_seconds=1.0 + n) for n in range(5)))
    await put(scene, Put(KIND, "4", b""))
    scene.clock.advance(60.0)
    for _ in range(3):
        await scene.store.prune(2, dead_count=0)
    assert await names(scene) == ["4"]


@chapter.promise()
async def due_records_come_in_order(scene: Scene) -> None:
    """The longest overdue comes first; the result says when to read again."""
    now = scene.clock.now()
    due = await scene.store.due_records(KIND, limit=9)
    assert due[:2] == ([], None)
    assert abs(due.now - now) < 0.001, "the time of the store, also without a record"
    await put(scene, Put("test:idle", "never", b""))
    due = await scene.store.due_records("test:idle", limit=1)
    assert due[:2] == ([], None)
    assert abs(due.now - now) < 0.001, "also if none has a due time"
    await put(
        scene,
        *(Put(KIND, name, b"", due_at=now + at) for name, at in DUE_TIMES.items()),
        Put(KIND, "never", b""),
        Put("test:bank", "x", b"", due_at=now - 9.0),
    )
    for limit, wanted, following in (
        (9, ["c", "a", "b"], 30.0),
        (3, ["c", "a", "b"], 30.0),
        (2, ["c", "a"], 0.0),
    ):
        due = await (await scene.other()).due_records(KIND, limit=limit)
        assert [record.name for record in due.records] == wanted
        assert due.next_due_seconds is not None
        assert abs(due.next_due_seconds - following) < 0.001
        assert abs(due.now - now) < 0.001, "the time of the store"
    scene.clock.advance(30.5)
    due = await scene.store.due_records(KIND, limit=9)
    assert [record.name for record in due.records] == ["c", "a", "b", "d"]
    assert due.next_due_seconds is None
    await put(scene, Put(KIND, "c", b""), Put(KIND, "a", b"", due_at=now + 90.5))
    due = await scene.store.due_records(KIND, limit=9)
    assert [record.name for record in due.records] == ["b", "d"]
    assert abs((due.next_due_seconds or 0.0) - 60.0) < 0.001


DUE_TIMES = {"b": -1.0, "a": -1.0, "c": -2.0, "d": 30.0}


@chapter.promise()
async def a_list_is_in_the_order_of_names(scene: Scene) -> None:
    """Names are compared as bytes, listed by pages, of one kind only."""
    every = ["A", "a", "a b", "a/1", "a/10", "a/2", "b", "\u00fc", "\U0001f600"]
    assert every == sorted(every, key=str.encode)
    await put(scene, *(Put(KIND, name, b"") for name in reversed(every)))
    await put(scene, Put("test:shop2", "a", b""), Put("test:sho", "a", b""))
    assert await names(scene) == every
    found: list[str] = []
    while page := await names(scene, after=found[-1] if found else "", limit=2):
        assert len(page) <= 2
        found += page
    assert found == every
    assert await names(scene, limit=0) == []
    assert await names(scene, after="aa") == ["b", "\u00fc", "\U0001f600"]


PREFIXES = {
    "a": ["a", "a\ud7ff", "a\ud7ffb", "a\ue000", "a\U0010ffff", "a\U0010ffffb"],
    "a\ud7ff": ["a\ud7ff", "a\ud7ffb"],
    "a\ue000": ["a\ue000"],
    "a\U0010ffff": ["a\U0010ffff", "a\U0010ffffb"],
    "b": ["b"],
    "\U0010ffff": ["\U0010ffff", "\U0010ffff\U0010ffff"],
    "c": [],
}


@chapter.promise()
async def a_list_may_have_a_prefix(scene: Scene) -> None:
    """It has every name that begins with the prefix, whatever the next character is."""
    every = [*PREFIXES["a"], "b", *PREFIXES["\U0010ffff"]]
    await put(scene, *(Put(KIND, name, b"") for name in every))
    for prefix, wanted in PREFIXES.items():
        assert await names(scene, prefix=prefix) == wanted
    assert await names(scene, prefix="a", after="a\ud7ffb", limit=2) == [
        "a\ue000",
        "a\U0010ffff",
    ]


REFUSED = {
    "a name without text": [Put(KIND, "", b"")],
    "a kind without text": [Put("", "a", b"")],
    "a name with NUL": [Put(KIND, "a\0", b"")],
    "half a character": [Put(KIND, "a\ud800", b"")],
    "a long name": [Put(KIND, "x" * 513, b"")],
    "a long kind": [Put("\u00fc" * 257, "a", b"")],
    "a due time that is no number": [Put(KIND, "a", b"", due_at=math.nan)],
    "a due time without end": [Put(KIND, "a", b"", due_at=math.inf)],
    "an expiry that is no number": [Put(KIND, "a", b"", ttl_seconds=math.nan)],
    "an expiry without end": [Put(KIND, "a", b"", ttl_seconds=-math.inf)],
    "a large body": [Put(KIND, "a", b"x" * (64 * 1024 + 1))],
    "one record twice": [Put(KIND, "a", b"1"), Put(KIND, "a", b"2")],
    "many rows": [Put(KIND, f"{n}", b"") for n in range(1001)],
}


@chapter.table(REFUSED)
async def what_cannot_be_kept_is_refused(scene: Scene, puts: list[Put]) -> None:
    """The error is clear, and nothing is written."""
    before = await scene.everything()
    try:
        await scene.store.commit(Effects(puts=[Put(KIND, "z", b""), *puts]))
    except UsageError:
        pass
    else:
        raise AssertionError("it was written")
    assert await scene.everything() == before


@chapter.table({"zero": 0, "minus one": -1, "minus two": -2})
async def due_records_need_a_limit(scene: Scene, limit: int) -> None:
    """A limit below 1 is refused."""
    await put(scene, *(Put(KIND, name, b"", due_at=1.0) for name in "abc"))
    try:
        await scene.store.due_records(KIND, limit=limit)
    except UsageError:
        return
    raise AssertionError("it was read")


@chapter.table({"NUL": "\0", "text with NUL": "a\0b", "half a character": "a\ud800"})
async def what_no_record_can_have_finds_none(scene: Scene, text: str) -> None:
    """This holds for kinds, names, prefixes and `after`; other names are found."""
    store = scene.store
    await put(scene, Put(KIND, "a", b"", due_at=1.0), Put(KIND, "b", b""))
    assert [r.name for r in await store.records(KIND, [text, "b", "a"])] == ["b", "a"]
    assert await store.records(KIND, [text]) == []
    assert await store.records(text, ["a"]) == []
    assert await names(scene, prefix=text) == []
    assert await names(scene, after=text) == []
    assert await store.list_records(text) == []
    assert (await store.due_records(text, limit=9))[:2] == ([], None)


@chapter.promise()
async def the_largest_records_are_kept(scene: Scene) -> None:
    """64 KiB, 512 bytes of kind and of name, and 1,000 records in one commit are accepted."""
    kind, name = "\U0010ffff" * 128, "x" * 512
    assert name < BEYOND_ALL_NAMES
    body = b"\xff" * 65536
    await put(scene, Put(kind, kind, body), Put(kind, name, body))
    assert [r.name for r in await scene.store.list_records(kind)] == [name, kind]
    assert await scene.store.records(kind, [name, kind]) == (
        await scene.store.list_records(kind)
    )
    puts = [Put(KIND, f"{n:04}", b"", if_version=0) for n in range(1000)]
    versions = await put(scene, *puts)
    assert len(set(versions)) == 1000
    assert len(await names(scene, limit=MANY)) == 1000

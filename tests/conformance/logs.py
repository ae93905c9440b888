"""What a store promises about logs: entries without gaps, in one order for all readers."""

import asyncio

from durio.model.effects import Append, Effects, NewEntry, Put
from durio.model.errors import InvalidName, UsageError
from durio.ports.logs import ENTRY_BYTES_MAX, LOG_NAME_BYTES_MAX, Entry
from tests.conformance.promises import Chapter
from tests.conformance.records import KIND
from tests.conformance.scene import MANY, Scene, outcome

chapter = Chapter("logs")
OURS = ("has_transactions",)
LOG, OTHER_LOG = "t:shop/a", "t:shop/b"


def append(*bodies: bytes, log: str = LOG, **fields: float) -> Effects:
    return Effects(appends=[Append(log, [NewEntry(body) for body in bodies], **fields)])


async def bodies(scene: Scene, log: str = LOG) -> list[bytes | None]:
    """Return all bodies; the offsets must count from 0 without gaps."""
    entries = await scene.log(log)
    assert [entry.offset for entry in entries] == list(range(len(entries)))
    return [entry.body for entry in entries]


@chapter.promise()
async def an_append_makes_a_log_longer(scene: Scene) -> None:
    """The first one creates the log; tags and ids are kept."""
    assert await scene.store.read_log(LOG) == []
    assert await scene.store.log_lengths([LOG]) == {}
    new = [NewEntry(b"1", 7), NewEntry(None, uid="u")]
    await scene.store.commit(Effects(appends=[Append(LOG, new)]))
    now = scene.clock.now()
    assert await scene.store.read_log(LOG) == [
        Entry(0, now, 7, None, None, None, b"1"),
        Entry(1, now, 0, None, None, "u", None),
    ]
    await (await scene.other()).commit(append(b"3"))
    assert await scene.store.log_lengths([LOG, OTHER_LOG]) == {LOG: 3}
    assert await bodies(scene) == [b"1", None, b"3"]


@chapter.promise()
async def a_read_begins_and_ends_where_it_is_asked_to(scene: Scene) -> None:
    """A read past the end finds nothing."""
    await scene.store.commit(append(*(b"%d" % n for n in range(10))))
    found = await scene.store.read_log(LOG, 3, limit=2)
    assert [(entry.offset, entry.body) for entry in found] == [(3, b"3"), (4, b"4")]
    assert [e.offset for e in await scene.store.read_log(LOG, 8)] == [8, 9]
    assert await scene.store.read_log(LOG, 10) == []
    assert await scene.store.read_log(LOG, 0, limit=0) == []


@chapter.promise()
async def several_appends_of_one_commit_are_in_order(scene: Scene) -> None:
    """A log may be named twice."""
    effects = Effects(
        appends=[
            Append(LOG, [NewEntry(b"1"), NewEntry(b"2")]),
            Append(OTHER_LOG, [NewEntry(b"x")]),
            Append(LOG, [NewEntry(b"3")]),
        ]
    )
    await scene.store.commit(effects)
    assert await bodies(scene) == [b"1", b"2", b"3"]
    assert await bodies(scene, OTHER_LOG) == [b"x"]


@chapter.promise()
async def a_log_takes_an_id_once(scene: Scene) -> None:
    """A repeat is left out, in the same commit and later; other logs are not concerned."""
    twice = Append(LOG, [NewEntry(b"1", uid="u"), NewEntry(b"2", uid="u")])
    for _ in range(2):
        answer = await scene.store.commit(
            Effects(appends=[twice, Append(OTHER_LOG, [NewEntry(b"x", uid="u")])])
        )
        assert answer.conflict is None
    assert await bodies(scene) == [b"1"]
    assert await bodies(scene, OTHER_LOG) == [b"x"]
    await scene.store.commit(append(b"3"))
    assert await bodies(scene) == [b"1", b"3"]


@chapter.promise()
async def many_writers_leave_no_gap(scene: Scene) -> None:
    """A reader beside them never misses an entry, and never sees one twice."""
    stores = [scene.store, await scene.other()]
    wanted = [b"%d-%d" % (writer, n) for writer in range(6) for n in range(10)]

    async def write(writer: int) -> None:
        for n in range(10):
            await stores[writer % 2].commit(append(b"%d-%d" % (writer, n)))

    seen: list[Entry] = []
    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(write(writer)) for writer in range(6)]
        while len(seen) < len(wanted):
            seen += await scene.store.read_log(LOG, len(seen), limit=7)
            _, writing = await asyncio.wait(writers, timeout=0)
            if not writing:
                await scene.settle()
    assert [entry.offset for entry in seen] == list(range(len(wanted)))
    found = [entry.body for entry in seen]
    assert sorted(body for body in found if body is not None) == sorted(wanted)
    for writer in range(6):
        mine = [body for body in found if body and body.startswith(b"%d-" % writer)]
        assert mine == [b"%d-%d" % (writer, n) for n in range(10)]


@chapter.promise()
async def several_logs_are_read_together(scene: Scene) -> None:
    """Each from its beginning, and not more entries of each than asked for."""
    await scene.store.commit(append(b"0", b"1", b"2"))
    await scene.store.commit(append(b"x", log=OTHER_LOG))
    found = await scene.store.read_logs([OTHER_LOG, LOG, "t:shop/none"], limit=2)
    assert {log: [e.body for e in entries] for log, entries in found.items()} == {
        LOG: [b"0", b"1"],
        OTHER_LOG: [b"x"],
    }
    assert found[LOG] == await scene.store.read_log(LOG, limit=2)
    assert await scene.store.read_logs([], limit=2) == {}


@chapter.promise()
async def a_trimmed_log_keeps_its_offsets(scene: Scene) -> None:
    """Its length stays, and it grows on."""
    await scene.store.commit(append(b"0", b"1", b"2"))
    await scene.store.trim_log(LOG, 2)
    await scene.store.trim_log(OTHER_LOG, 2)
    assert [entry.offset for entry in await scene.store.read_log(LOG)] == [2]
    await scene.store.commit(append(b"3"))
    assert [entry.offset for entry in await scene.store.read_log(LOG)] == [2, 3]
    assert await scene.store.log_lengths([LOG]) == {LOG: 4}
    await scene.store.trim_log(LOG, 9)
    assert await scene.store.log_lengths([LOG]) == {LOG: 4}
    await scene.store.commit(append(b"4"))
    assert [entry.offset for entry in await scene.store.read_log(LOG)] == [4]


@chapter.promise()
async def a_dropped_log_is_gone(scene: Scene) -> None:
    """Another of the same name begins at 0."""
    await scene.store.commit(append(b"0", b"1"))
    await scene.store.commit(append(b"x", log=OTHER_LOG))
    await scene.store.drop_logs([LOG, "t:shop/none"])
    assert await scene.store.log_lengths([LOG, OTHER_LOG]) == {OTHER_LOG: 1}
    assert await scene.store.read_log(LOG) == []
    await scene.store.commit(append(b"2"))
    assert await bodies(scene) == [b"2"]


@chapter.promise()
async def an_expired_log_is_deleted_in_steps(scene: Scene) -> None:
    """Each prune deletes a bounded number of entries; other logs stay."""
    await scene.store.commit(append(*(b"%d" % n for n in range(9)), ttl_seconds=60.0))
    await scene.store.commit(append(b"x", log=OTHER_LOG))
    await scene.store.prune(MANY, dead_count=0)
    assert len(await scene.log(LOG)) == 9
    scene.clock.advance(61.0)
    for _ in range(4):
        await scene.store.prune(3, dead_count=0)
    assert await scene.store.log_lengths([LOG, OTHER_LOG]) == {OTHER_LOG: 1}
    assert await scene.store.read_log(LOG) == []


@chapter.promise()
async def nothing_is_appended_after_a_conflict(scene: Scene) -> None:
    """A commit is all or nothing."""
    await scene.store.commit(Effects(puts=[Put(KIND, "a", b"1")]))
    effects = append(b"0")._replace(puts=[Put(KIND, "a", b"2", if_version=0)])
    assert (await scene.store.commit(effects)).conflict is not None
    assert await scene.store.log_lengths([LOG]) == {}


@chapter.promise()
async def what_cannot_be_stored_is_refused(scene: Scene) -> None:
    """Names have 1 to 128 bytes, bodies at most 32 KiB; nothing is written."""
    long_name = "n" * (LOG_NAME_BYTES_MAX + 1)
    for effects, error in (
        (append(b"0", log=""), InvalidName),
        (append(b"0", log=long_name), InvalidName),
        (append(b"0", log="a\0b"), InvalidName),
        (append(b"0", log="\ud800"), InvalidName),
        (append(b"0" * (ENTRY_BYTES_MAX + 1)), UsageError),
        (append(b"0", ttl_seconds=float("nan")), UsageError),
        (append(*[b"0"] * 1001), UsageError),
        (Effects(appends=[Append(LOG, [NewEntry(b"", uid=long_name)])]), InvalidName),
    ):
        try:
            await scene.store.commit(effects)
        except error:
            continue
        raise AssertionError(f"{effects} was written")
    assert await scene.store.log_lengths([LOG, long_name, "a\0b", "\ud800"]) == {}
    assert await scene.store.read_log("a\0b") == []
    await scene.store.trim_log("\ud800", 1)
    await scene.store.drop_logs(["a\0b"])


@chapter.promise("M98", needs=("fault",))
async def a_fault_at_any_statement_appends_nothing(scene: Scene) -> None:
    """Afterwards the same commit succeeds."""
    await scene.store.commit(append(b"0"))
    effects = Effects(
        appends=[
            Append(LOG, [NewEntry(b"1", uid="u")], ttl_seconds=60.0),
            Append(OTHER_LOG, [NewEntry(b"x")]),
        ]
    )
    await scene.after_every_fault(lambda: scene.store.commit(effects))
    assert await bodies(scene) == [b"0", b"1"]
    assert await bodies(scene, OTHER_LOG) == [b"x"]


@chapter.promise("M98", needs=("fault",))
async def a_fault_at_any_statement_drops_no_log(scene: Scene) -> None:
    """Afterwards the logs are gone with their entries; others stay."""
    for log in (LOG, OTHER_LOG, "t:shop/c"):
        await scene.store.commit(append(b"0", b"1", log=log))
    await scene.after_every_fault(lambda: scene.store.drop_logs([LOG, OTHER_LOG]))
    lengths = await scene.store.log_lengths([LOG, OTHER_LOG, "t:shop/c"])
    assert lengths == {"t:shop/c": 2}
    assert await bodies(scene) == []


# --- in a caller's transaction


@chapter.promise("M95", needs=OURS)
async def entries_of_a_transaction_come_with_its_commit(scene: Scene) -> None:
    """They are not visible before, and a rollback leaves none."""
    worker, claim = await scene.running()
    store = scene.store
    own = await store.transaction(worker)
    await store.commit(append(b"lost"), tx=own.connection)
    await own.roll_back()
    own = await store.transaction(worker)
    await store.commit(append(b"0", b"1"), tx=own.connection)
    assert await (await scene.other()).read_log(LOG) == []
    await own.commit(outcome(claim))
    await scene.settle()
    assert await bodies(scene) == [b"0", b"1"]

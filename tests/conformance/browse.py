"""What a store promises to readers: complete pages, and nothing of other namespaces."""

from collections import Counter
from typing import Any

from durio.client.namespaces import apps_in
from durio.client.task_by_name import published_tasks
from durio.model.effects import Effects, Put
from durio.model.errors import UsageError
from durio.model.job import DEAD, DONE, READY, RUNNING, SCHEDULED
from durio.model.outcome import OutcomeKind
from durio.model.published_tasks import parameters_digest
from durio.model.schedule import schedules_kind
from durio.ports.browse import LaneRow, Query
from durio.ports.control import AuditNote, CancelJobs, QueueChange, RetryJobs
from durio.ports.store import Store
from durio.worker.unrunnable import published_digests
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, LEASE_SECONDS, MANY, TASK, Scene
from tests.job_counts import count_jobs

chapter = Chapter("browse")


@chapter.promise("M170", "M171")
async def jobs_are_read_by_id(scene: Scene) -> None:
    """Unknown ids are left out; another process reads the same."""
    one, two = await scene.add(), await scene.add(delay=5.0)
    unknown = scene.clock.new_id()
    for store in (scene.store, await scene.other()):
        records = await store.get([two, unknown, one])
        assert {record.id for record in records} == {one, two}
        assert await store.states([unknown, two, one]) == {one: READY, two: SCHEDULED}
        assert await store.get([]) == []
        assert await store.states([]) == {}


@chapter.promise()
async def ids_of_a_range_are_read_newest_first(scene: Scene) -> None:
    """Both ends count; jobs of every state are found, each once."""
    worker, claim = await scene.running()
    await scene.finish(worker, claim)
    done, dead = claim.id, await scene.dead()
    ready, later = await scene.add(), await scene.add(delay=5.0)
    ids = sorted([done, dead, ready, later], reverse=True)
    for store in (scene.store, await scene.other()):
        assert await store.ids_between(b"\0" * 16, b"\xff" * 16, limit=9) == ids
        assert await store.ids_between(ids[2], ids[1], limit=9) == ids[1:3]
        assert await store.ids_between(ids[3], ids[0], limit=2) == ids[:2]
        assert await store.ids_between(b"\0" * 16, b"\1" * 16, limit=9) == []


@chapter.promise()
async def a_thousand_jobs_are_read_by_id(scene: Scene) -> None:
    """The number is not limited by any statement."""
    ids = await scene.add_many(1000)
    assert len(await scene.store.get(ids)) == 1000
    assert await scene.store.states(ids) == dict.fromkeys(ids, READY)


@chapter.promise("M91")
async def find_narrows_by_every_field(scene: Scene) -> None:
    """Newest first; None matches every job; all given fields must match."""
    mail = await scene.add(lane="shop:mail", task="shop.mail")
    later = await scene.add(lane="shop:mail", delay=5.0)
    bank = await scene.add(lane="bank:mail", task="bank.mail")
    dead = await scene.dead()

    async def found(query: Query) -> list[bytes]:
        page = await scene.store.find(query, limit=50, cursor=None)
        assert page.cursor is None
        return [record.id for record in page.jobs]

    assert await found(Query()) == [dead, bank, later, mail]
    assert await found(Query(namespace="shop")) == [dead, later, mail]
    assert await found(Query(states=(DEAD,))) == [dead]
    assert await found(Query(states=(SCHEDULED, READY))) == [bank, later, mail]
    assert await found(Query(states=())) == []
    assert await found(Query(lane="shop:mail")) == [later, mail]
    assert await found(Query(lane="shop:mail", task=TASK)) == [later]
    assert await found(Query(task="bank.mail")) == [bank]
    assert await found(Query(namespace="bank", task=TASK)) == []
    assert await found(Query(namespace="none")) == []


@chapter.promise("M91")
async def pages_miss_nothing_and_repeat_nothing(scene: Scene) -> None:
    """This holds while jobs arrive, and while some of the next jobs are finished."""
    ids = await scene.add_many(25)
    seen: list[bytes] = []
    cursor: str | None = None
    for _ in range(20):
        page = await scene.store.find(Query(namespace="shop"), limit=4, cursor=cursor)
        seen += [record.id for record in page.jobs]
        assert len(page.jobs) <= 4
        cursor = page.cursor
        if cursor is None:
            break
        await scene.add_many(3)
        await scene.store.act([ids[0]], CancelJobs())
    assert seen == ids[::-1]


@chapter.promise()
async def a_range_of_ids_narrows_every_read(scene: Scene) -> None:
    """Both ends count, in pages, in counts and in the pages of a mark."""
    worker, claim = await scene.running()
    await scene.finish(worker, claim)
    dead = [await scene.dead() for _ in range(2)]
    made = [claim.id, *dead, *await scene.add_many(5), await scene.add(delay=5.0)]
    ids = sorted(made, reverse=True)
    for first, last in ((0, 8), (2, 5), (3, 3), (5, 8)):
        query = Query(namespace="shop", first_id=ids[last], last_id=ids[first])
        wanted, seen, cursor = ids[first : last + 1], list[bytes](), None
        for _ in wanted:
            page = await scene.store.find(query, limit=2, cursor=cursor)
            seen += [job.id for job in page.jobs]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == wanted
        for state in (READY, DEAD, SCHEDULED):
            one = query._replace(states=(state,))
            page = await scene.store.find(one, limit=9, cursor=None)
            found = [job.id for job in page.jobs]
            assert set(found) <= set(wanted)
            assert [job.state for job in page.jobs] == [state] * len(found)
            counted = await scene.store.count(one)
            assert counted.jobs == len(found)
            marked = await scene.store.find(
                one, limit=9, cursor=None, mark=counted.mark
            )
            assert sorted(marked.ids, reverse=True) == found
    newest = Query(namespace="shop", first_id=ids[4])
    assert (await scene.store.count(newest, most=9)).jobs == 5
    retried = Query(states=(DEAD,), first_id=max(dead))
    mark = (await scene.store.count(retried)).mark
    acted = await scene.store.act(dead, RetryJobs(), only=(retried, mark))
    assert [one.id for one in acted] == [max(dead)]


@chapter.promise()
async def a_page_is_bounded(scene: Scene) -> None:
    """A page has at most 200 jobs, whatever limit is given."""
    await scene.add_many(250)
    page = await scene.store.find(Query(), limit=10**9, cursor=None)
    assert len(page.jobs) == 200
    page = await scene.store.find(Query(), limit=200, cursor=page.cursor)
    assert (len(page.jobs), page.cursor) == (50, None)


CURSORS = {"words": "no cursor", "negative": "-1", "huge": "9" * 40, "empty": ""}


@chapter.table(CURSORS)
async def a_cursor_that_nobody_gave_is_refused(scene: Scene, cursor: str) -> None:
    """It is refused or finds nothing wrong, and never raises an error that is not ours."""
    ids = await scene.add_many(3)
    try:
        page = await scene.store.find(Query(), limit=2, cursor=cursor)
    except UsageError:
        return
    assert {record.id for record in page.jobs} <= set(ids)


@chapter.promise()
async def the_place_in_line_is_the_order_of_claims(scene: Scene) -> None:
    """More urgent jobs first, then older ones; only ready jobs of the queue; bounded."""
    low, first, second = (
        await scene.add(priority=2),
        await scene.add(),
        await scene.add(),
    )
    urgent = await scene.add(priority=9)
    later = await scene.add(priority=9, delay=5.0)
    mail = await scene.add(lane="shop:mail")
    for store in (scene.store, await scene.other()):
        order = [urgent, first, second, low]
        found = [await store.ahead(job_id, limit=9) for job_id in order]
        assert found == [0, 1, 2, 3]
        assert await store.ahead(low, limit=2) == 2
        assert await store.ahead(mail, limit=9) == 0
        assert await store.ahead(later, limit=9) == 1
        assert await store.ahead(scene.clock.new_id(), limit=9) == 0
    worker = await scene.worker()
    claims = await scene.claim(worker, MANY)
    assert [claim.id for claim in claims] == order


@chapter.promise()
async def queues_are_known_once_used(scene: Scene) -> None:
    """They stay known when they are empty again."""
    assert await scene.store.queues("shop") == []
    worker, claim = await scene.running(lane="shop:mail")
    await scene.finish(worker, claim)
    await scene.add()
    lanes = sorted(await scene.store.queues("shop"))
    assert lanes == [LaneRow(LANE, False), LaneRow("shop:mail", False)]


@chapter.promise()
async def counts_are_of_what_is_not_over_and_of_the_dead(scene: Scene) -> None:
    """Counts are by lane and state; done and cancelled jobs are not counted."""
    await scene.dead()
    worker, claim = await scene.running()
    await scene.finish(worker, claim)
    await scene.running()
    await scene.add_many(3)
    await scene.add_many(2, delay=5.0)
    (cancelled,) = await scene.add_many(1)
    await scene.store.act([cancelled], CancelJobs())
    await scene.add(lane="shop:mail")
    counts = await count_jobs(scene.store, "shop")
    told = {
        lane: {state: n for state, n in by_state.items() if n}
        for lane, by_state in counts.items()
    }
    assert told == {
        LANE: {READY: 3, SCHEDULED: 2, RUNNING: 1, DEAD: 1},
        "shop:mail": {READY: 1},
    }
    assert DONE not in counts[LANE]


async def oldest(store: Store) -> dict[str, float]:
    """Return by lane since when its oldest ready job could have run."""
    rows = await store.queues("shop", oldest=True)
    return {r.name: r.oldest_ready_at for r in rows if r.oldest_ready_at is not None}


async def head_tasks(store: Store, heads: int) -> Counter[str]:
    """Return the number of jobs by task, at the heads of all queues."""
    found: Counter[str] = Counter()
    for row in await store.queues("shop", heads=heads):
        found.update(row.head_tasks)
    return found


@chapter.promise()
async def the_oldest_ready_job_of_each_queue_is_known(scene: Scene) -> None:
    """The time since which it could have run counts its due time, in every priority."""
    began = scene.clock.now()
    assert await oldest(scene.store) == {}
    await scene.add(priority=1)
    await scene.add(lane="shop:later", delay=100.0)
    await scene.add(lane="shop2:default")
    scene.clock.advance(50.0)
    await scene.add_many(20, priority=9)
    other = await scene.other()
    assert await oldest(other) == {LANE: began}
    scene.clock.advance(100.0)
    await scene.store.promote(9)
    wanted = {LANE: began, "shop:later": began + 100.0}
    assert await oldest(other) == wanted
    worker = await scene.worker()
    await scene.claim(worker, 21)
    assert await oldest(other) == {"shop:later": began + 100.0}
    # A job that comes back waits from when it was due again.
    (claim,) = await scene.claim(worker, lane="shop:later")
    await scene.finish(worker, claim, kind=OutcomeKind.RETRY, delay_seconds=10.0)
    scene.clock.advance(60.0)
    await scene.store.promote(9)
    assert await oldest(other) == {"shop:later": scene.clock.now() - 50.0}


@chapter.promise()
async def a_letter_sent_back_waits_since_then(scene: Scene) -> None:
    """The time counts from the retry, however old the job is."""
    dead = await scene.dead()
    scene.clock.advance(500.0)
    await scene.store.act([dead], RetryJobs())
    assert await oldest(scene.store) == {LANE: scene.clock.now()}


@chapter.promise()
async def tasks_that_wait_are_seen_in_a_bounded_look(scene: Scene) -> None:
    """It covers every queue, ready jobs or not; a long queue hides no other."""
    assert await head_tasks(scene.store, 100) == {}
    await scene.add_many(500)
    await scene.add(lane="shop:a", task="shop.a")
    await scene.add(lane="shop:b", task="shop.b", delay=9.0)
    await scene.add(lane="bank:a", task="bank.a")
    await scene.running(lane="shop:c", task="shop.c")
    seen = await head_tasks(await scene.other(), 90)
    assert {task: seen[task] for task in ("shop.a", "shop.b")} == {
        "shop.a": 1,
        "shop.b": 1,
    }
    assert 1 <= seen[TASK] <= 90
    assert set(seen) == {TASK, "shop.a", "shop.b"}


@chapter.promise("M112")
async def workers_are_shown_with_their_lease(scene: Scene) -> None:
    """Each row shows the worker, how long its lease lasts, and how many jobs it runs."""
    assert await scene.store.workers(None) == []
    idle = await scene.worker(name="host-2/5", queues=("mail", "default"))
    began = scene.clock.now()
    busy = await scene.worker(lease_seconds=60.0)
    await scene.add_many(2)
    await scene.claim(busy, 2)
    scene.clock.advance(10.0)
    rows = {row.id: row for row in await (await scene.other()).workers("shop")}
    assert set(rows) == {idle, busy}
    assert (rows[idle].running, rows[busy].running) == (0, 2)
    assert rows[idle].lease_seconds_left == LEASE_SECONDS - 10
    assert rows[busy].lease_seconds_left == 50.0
    info = rows[idle].info
    assert (info["name"], info["namespace"]) == ("host-2/5", "shop")
    assert tuple(info["queues"]) == ("mail", "default")
    assert rows[busy].info["queues"] is None
    assert info["started_at"] == began
    assert info["concurrency"] == 10


@chapter.promise("M112")
async def a_lease_that_is_over_says_for_how_long(scene: Scene) -> None:
    """People see how long ago it ended."""
    worker = await scene.worker()
    scene.clock.advance(LEASE_SECONDS + 90)
    (row,) = await (await scene.other()).workers("shop")
    assert (row.id, row.lease_seconds_left) == (worker, -90.0)
    assert row.lease_text() == "over for 90 s"


@chapter.promise("M112", needs=("leases_end_with_boot",))
async def a_lease_of_another_boot_is_shown_as_over(scene: Scene) -> None:
    """After a restart of the machine nothing more is known about it."""
    await scene.worker()
    scene.clock.reboot()
    (row,) = await (await scene.other()).workers("shop")
    assert (row.lease_seconds_left, row.lease_text()) == (0.0, "over")


@chapter.promise("M10")
async def apps_have_a_job_a_live_worker_or_records(scene: Scene) -> None:
    """A queue alone is not enough, nor is a worker whose lease is over."""
    assert await apps_in(scene.store) == []
    await scene.store.set_queue("typo:mail", QueueChange(paused=True), AuditNote("ann"))
    await scene.add(lane="jobs:mail", task="jobs.mail")
    await scene.worker("lively")
    pay: dict[str, Any] = {"queue": "default", "priority": 5, "parameters": []}
    store = await scene.other()
    assert await store.namespaces() == ["jobs", "lively", "typo"]
    assert await apps_in(store) == ["jobs", "lively"]
    await scene.worker("told", tasks={"told.pay": pay})
    put = Put(schedules_kind("timed"), "nightly", b"{}")
    assert (await store.commit(Effects(puts=[put]))).conflict is None
    scene.clock.advance(LEASE_SECONDS + 1)
    assert await apps_in(store) == ["jobs", "timed", "told"]
    assert await store.namespaces(["schedule"]) == [
        "jobs",
        "lively",
        "timed",
        "told",
        "typo",
    ]


@chapter.promise("M10")
async def an_app_with_finished_jobs_only_is_an_app(scene: Scene) -> None:
    """Whatever state its jobs are in."""
    worker, claim = await scene.running()
    await scene.finish(worker, claim)
    scene.clock.advance(LEASE_SECONDS + 1)
    assert await apps_in(scene.store) == ["shop"]


@chapter.promise("M3", "M27")
async def workers_publish_their_tasks(scene: Scene) -> None:
    """Tasks are unknown until a worker has published them; then all of them are known."""
    assert await published_tasks(scene.store, "shop") is None
    pay = {"queue": "default", "priority": 5, "parameters": [{"name": "order_id"}]}
    mail = {"queue": "mail", "priority": 9, "parameters": [{"name": "to"}]}
    await scene.worker(tasks={"shop.pay": pay})
    await scene.worker(tasks={"shop.pay": pay, "shop.mail": mail})
    assert await published_tasks(scene.store, "shop") == {
        "shop.pay": pay,
        "shop.mail": mail,
    }
    newer = {**pay, "priority": 7}
    await scene.worker(tasks={"shop.pay": newer})
    tasks = await published_tasks(await scene.other(), "shop")
    assert tasks is not None
    assert tasks["shop.pay"] == newer
    assert await published_tasks(scene.store, "bank") is None


@chapter.promise("M45")
async def signatures_of_old_and_new_code_stand_side_by_side(scene: Scene) -> None:
    """This holds whichever worker began last: a payload that fits one of them is not bad."""
    assert await published_digests(scene.store, "shop.pay") == set()
    old: dict[str, Any] = {"parameters": [{"name": "order_id"}]}
    new: dict[str, Any] = {"parameters": [{"name": "order_id"}, {"name": "note"}]}
    for told in (old, new, old):
        await scene.worker(tasks={"shop.pay": told, "shop.pay2": {"parameters": []}})
    other = await scene.other()
    marks = {parameters_digest(told["parameters"]) for told in (old, new)}
    assert await published_digests(other, "shop.pay") == marks
    assert len(await published_digests(other, "shop.pay2")) == 1
    scene.clock.advance(40 * 86400.0)
    await scene.worker(tasks={"shop.pay": old})
    assert await published_digests(other, "shop.pay") == {
        parameters_digest(old["parameters"])
    }
    assert await published_digests(other, "bank.pay") == set()


NEIGHBOURS = {
    "another word": ("shop", "bank"),
    "the same beginning": ("shop", "shop2"),
    "a dash": ("shop", "shop-eu"),
    "an underscore is no wildcard": ("a_b", "axb"),
}


@chapter.table(NEIGHBOURS, "M13")
async def namespaces_do_not_see_each_other(
    scene: Scene, names: tuple[str, str]
) -> None:
    """No query of one namespace returns data of the other."""
    for name in names:
        await scene.add(lane=f"{name}:default", task=f"{name}.pay")
        await scene.worker(name, tasks={f"{name}.pay": {"queue": "default"}})
    for name in names:
        store, lane = scene.store, f"{name}:default"
        assert [row.name for row in await store.queues(name)] == [lane]
        assert await count_jobs(store, name) == {lane: {READY: 1}}
        (row,) = await store.workers(name)
        assert row.info["namespace"] == name
        assert set(await published_tasks(store, name) or ()) == {f"{name}.pay"}
        (record,) = await scene.records(Query(namespace=name))
        assert record.lane == lane
        (claim,) = await scene.claim(row.id, 9, lane=lane)
        assert claim.task == f"{name}.pay"
        await scene.finish(row.id, claim)
        assert await count_jobs(store, name) in ({}, {lane: {}})

"""What is suggested while a query is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durio import App
from durio.client.search_completion import CompletionScope, complete_query, open_term
from durio.model.query_language import parse_query
from tests.unit.app.app_harness import drained, virtual, working

ALL = CompletionScope("shop")


async def send(to: str, amount: int = 1) -> None:
    del amount
    if not to:
        raise ValueError("no address")


async def fill(app: App) -> None:
    task = app.task(name="send", queue="mail", retry=0)(send)
    app.task(name="send_receipt", queue="slow")(send)
    await task.options(meta={"tenant": "acme", "a b": 1}).enqueue("")
    await drained(app)


async def inserts(
    app: App, text: str, at: int | None = None, scope: CompletionScope = ALL
) -> list[str]:
    store = await app.store()
    found = await complete_query(store, text, len(text) if at is None else at, scope)
    assert len(found) <= 20
    for each in found:
        if not each.insert.endswith((":", ".")):
            parse_query(each.insert)
    return [each.insert for each in found]


@virtual(name="shop")
async def test_keys_come_first(app: App):
    await fill(app)
    assert (await inserts(app, ""))[:4] == ["state:", "queue:", "task:", "id:"]
    assert (await inserts(app, "state:dead "))[0] == "state:"
    assert await inserts(app, "-sch") == ["-schedule:", "-state:scheduled"]
    assert (await inserts(app, "se")) == ["task:send", "task:send_receipt"]
    assert (await inserts(app, "dea")) == ["state:dead"]
    assert (await inserts(app, "queue:mail ma")) == ["queue:mail"]


@virtual(name="shop")
async def test_values_of_every_key(app: App):
    await fill(app)
    await app.schedules.create(
        "nightly", app.task(name="x", queue="mail")(fill_nothing), cron="0 2 * * *"
    )
    assert await inserts(app, "state:de") == ["state:dead"]
    assert await inserts(app, "-state:dead,do") == ["-state:dead,done"]
    assert await inserts(app, "queue:") == ["queue:mail"]
    assert await inserts(app, "task:rec") == ["task:send_receipt"]
    assert await inserts(app, "reason:ex") == ["reason:exhausted", "reason:expired"]
    assert "priority:high" in await inserts(app, "priority:")
    assert await inserts(app, "age:>1m") == ["age:>1m"]
    assert await inserts(app, "schedule:") == ["schedule:nightly"]
    assert await inserts(app, "error:value") == ["error:ValueError"]
    (group,) = await inserts(app, "group:")
    assert len(group) == len("group:") + 12
    assert await inserts(app, "id:01") == []
    assert await inserts(app, "nokey:x") == []
    assert await inserts(app, "state.x:d") == []


async def fill_nothing() -> None: ...


@virtual(name="shop")
async def test_workers_and_versions(app: App):
    app.version = "v2"
    async with working(app):
        store = await app.store()
        while not await store.workers("shop"):
            await app.clock.sleep(0.1)
        assert await inserts(app, "version:") == ["version:v2"]
        (worker,) = await inserts(app, "worker:")
        assert worker.startswith("worker:")


@virtual(name="shop")
async def test_names_of_arguments_and_meta(app: App):
    await fill(app)
    assert await inserts(app, "arg") == ["args."]
    assert await inserts(app, "args.") == ["args.amount:", "args.to:"]
    assert await inserts(app, "-args.t") == ["-args.to:"]
    assert await inserts(app, "meta.t") == ["meta.tenant:"]
    assert await inserts(app, "meta.") == ["meta.tenant:"]
    assert await inserts(app, "args.to:x") == []


@virtual(name="shop")
async def test_the_position_counts(app: App):
    await fill(app)
    assert await inserts(app, "state:de queue:mail", 8) == ["state:dead"]
    assert (await inserts(app, "state:de", -5))[0] == "state:"
    assert await inserts(app, "state:de", 10**9) == ["state:dead"]


@virtual(name="shop")
async def test_a_user_of_one_queue_gets_no_other_names(app: App):
    await fill(app)
    scope = CompletionScope("shop", queues=("slow",), has_payloads=False)
    assert await inserts(app, "queue:", scope=scope) == []
    assert await inserts(app, "task:", scope=scope) == ["task:send_receipt"]
    assert await inserts(app, "error:", scope=scope) == []
    assert await inserts(app, "group:", scope=scope) == []
    for text in ("args", "args.", "meta.", "met"):
        assert await inserts(app, text, scope=scope) == []


@virtual(name="shop")
async def test_notes_say_how_a_key_is_searched(app: App):
    await fill(app)
    found = await complete_query(await app.store(), "", 0, ALL)
    notes = {each.insert: each.note for each in found}
    assert "(indexed)" in notes["state:"]
    assert "(scan)" in notes["error:"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ("", None, "", "")),
        ("a -b", ("-", None, "", "b")),
        ('x "a b', ("", None, "", '"a b')),
        ("key:a,b", ("", "key", "a,", "b")),
        ('key:"a,b', ("", "key", "", "a,b")),
        (r'key:"a\",b","c', ("", "key", r'"a\",b",', "c")),
        (r'"a\" b" s', ("", None, "", "s")),
        ("age:>1", ("", "age", "", ">1")),
    ],
)
def test_finds_the_open_term(text: str, wanted: object) -> None:
    assert open_term(text) == wanted


@given(st.text(alphabet='ab:,"\\ -.*<>', max_size=30))
def test_any_text_has_an_open_term(text: str) -> None:
    term = open_term(text)
    assert term.before == "" or term.key is not None

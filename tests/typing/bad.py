"""Mistakes that a type checker must find before the program runs.

Lines that must be refused carry `# E` and what is wrong; no other line may be. mypy cannot
find what stands behind `# E pyright:`.
"""

from good import (
    Deps,
    add,
    add_task,
    alert,
    any_first,
    any_inside,
    any_keywords,
    app,
    bare,
    bill,
    crunch,
    embed,
    forget,
    half,
    high,
    length,
    longest,
    none_first,
    nothing,
    object_first,
    only_context,
    only_keywords,
    only_positional,
    render,
    resize,
    send,
    sync_any,
    sync_bare,
    total,
)

from durio import App, Context, Job, Retry, Signature, State
from durio import Jobs  # E no such name
from durio.limits import Batch
from durio.plans import chain, chord, group


async def bad_calls(ctx: Context[Deps]) -> None:
    await send.enqueue("1", to="x")  # E wrong type
    await send.enqueue(1)  # E keyword missing
    await send.enqueue(1, "x")  # E keyword given by position
    await send.enqueue(1, to="x", cc="y")  # E no such argument
    await send.enqueue(1, to="x", priority=9)  # E options go into options()
    await render.enqueue("x")  # E wrong type behind the context
    await render.enqueue(ctx, 7)  # E the context is never an argument of a job
    await render.enqueue()  # E argument missing
    await forget.enqueue([1], label="x")  # E wrong type of a free keyword
    await half.enqueue("x")  # E wrong type of a sync task
    half.enqueue_sync("x")  # E wrong type
    bill.enqueue_sync(1, paid_at="today")  # E a datetime


async def bad_first_parameters(ctx: Context[Deps], plain: Context) -> None:
    await bare.enqueue(1)  # E wrong type behind a bare Context
    await bare.enqueue("a", 2)  # E keyword given by position
    await bare.enqueue("a", widht=2)  # E no such keyword
    await bare.enqueue()  # E argument missing
    await bare.enqueue(ctx, "a")  # E the context is never an argument of a job
    await any_inside.enqueue([1])  # E an Any inside does not make all Any
    await any_inside.enqueue({}, n="1")  # E wrong type beside an Any
    await any_inside.enqueue({}, deps=ctx.deps)  # E deps are no argument
    await any_first.enqueue()  # E pyright: an Any is still an argument
    await any_first.enqueue(1, "x")  # E pyright: wrong type behind an Any
    await object_first.enqueue(meta={})  # E an object is an argument, no context
    await object_first.enqueue(1, 2)  # E wrong type behind an object
    await none_first.enqueue(1)  # E a text or None
    await only_positional.enqueue(order_id=1)  # E by position only
    await only_keywords.enqueue("a")  # E by keyword only
    await any_keywords.enqueue(fields=[1])  # E wrong type of a keyword
    await nothing.enqueue(1)  # E takes nothing
    await only_context.enqueue(1)  # E takes nothing but the context
    sync_bare.enqueue_sync("1")  # E wrong type behind the context of a sync task
    sync_any.enqueue_sync(1)  # E pyright: wrong type, though it returns Any
    await crunch.enqueue(1.0, digit=2)  # E no such keyword, kept decorator
    plain.deps.smtp  # E a bare Context knows no deps


async def bad_rows() -> None:
    await length.enqueue_many("abc")  # E rows are tuples
    await length.enqueue_many([1, 2])  # E rows are tuples
    await length.enqueue_many([None])  # E nothing is no row
    await length.enqueue_many(["abc"])  # E a text is no row
    await length.enqueue_many([(1,)])  # E wrong type in a tuple of one
    await add.enqueue_many([(1, "2")])  # E wrong type in a tuple
    await add.enqueue_many([(1,)])  # E tuple too short
    await add.enqueue_many([(1, 2, 3)])  # E tuple too long
    await add.enqueue_many([{1: 2}])  # E keywords are named by text
    await send.enqueue_many([(1, {"to": "a"})])  # E a dict at the end is no keywords
    await send.enqueue_many([(1,)])  # E a keyword is missing
    await send.enqueue_many([send.s("1", to="a")])  # E wrong type in a signature
    await send.enqueue_many([add.s(1, 2)])  # E a signature of another task
    await nothing.enqueue_many([(1,)])  # E takes nothing
    add.enqueue_many_sync([(1, "2")])  # E wrong type in a tuple
    add.enqueue_many_sync([send.s(1, to="a")])  # E a signature of another task
    await resize.options(delay=1).enqueue_many([(1,)])  # E wrong type behind options


async def bad_signatures() -> None:
    send.s("1", to="a")  # E wrong type
    send.s()  # E a keyword is missing, whatever comes before
    send.s(1, to="a", cc="b")  # E no such argument
    send.options(delay=1).s(1)  # E keyword missing behind options
    send.s(1, to="a").task = "other"  # E a signature is frozen
    other: Signature[..., int] = send.s(1, to="a")  # E gives a text
    await send.s(1, to="a")  # E a signature is no call
    await app.named("shop.send").options(dely=1).enqueue(1)  # E no such option
    await app.named(send).enqueue(1)  # E a name is a text


async def bad_links() -> None:
    send.s(1, to="a") | half.s()  # E a text into a float
    send.s(1, to="a") | length.s() | longest.s(3)  # E a number into a list
    send.s(1, to="a") | length.s("b")  # E has its argument already
    send.s(1, to="a") | length  # E forgotten .s()
    send.s(1, to="a") | nothing.s()  # E takes no result: .si()
    length.s() | send.s()  # E a keyword is missing
    half.si(1.0) | longest.s(3)  # E a float into a list
    half.si()  # E argument missing
    send.si(1)  # E keyword missing
    length.si(1)  # E wrong type
    chain(send.s(1, to="a"), half.s())  # E a text into a float
    chain(send.s(1, to="a"), length.s(), longest.s(3))  # E a number into a list
    chain(length("a"))  # E a call, not a signature
    chain([length("a")])  # E calls, not signatures
    chain(["a", "b"])  # E texts, not signatures
    chain(length.s(), half.s(), longest.s(3))  # E a float into a list
    chain(send.si(1, to="a"), half.s())  # E a text into a float
    whole = chain(send.s(1, to="a"), length.s())
    send.s(1, to="a") | whole  # E has its argument already


async def bad_groups() -> None:
    group(length)  # E forgotten .s()
    group([length.s("a")], cancel_rest=True, on_error="collect")  # E one of the two
    group([length.s("a")], on_error="ignore")  # E no such rule
    group([length.s("a")]) | longest.s(3)  # E a list of numbers, not of texts
    chord([length.s("a")], longest.s(3))  # E a list of numbers, not of texts
    chord([length.s("a")])  # E no callback
    chord([length.s("a")], half.s())  # E a list into a float
    length.map([1, 2])  # E wrong type of an item
    add.starmap([(1, "2")])  # E wrong type in a row
    add.starmap([(1,)])  # E row too short
    add.chunks([(1, 2)])  # E the size is missing
    length.map(["a"]) | longest.s(3)  # E a list of numbers, not of texts
    length.s("a").on_error(total.s())  # E takes no PlanFailure
    length.s("a").on_error(nothing.s())  # E takes nothing
    (length.s("a") | half.s()).options(delay=3)  # E no option of a plan
    (length.s() | half.s()).options(delay=3)  # E no option of a plan
    length.s().options(queue="low")  # E options come before the arguments
    send.s(1, to="a") | chord([length.s("a")], total.s())  # E has its argument already
    (length.s("a") | half.s()).kind = "group"  # E a plan is frozen
    length.s().on_error(alert)  # E forgotten .s()


async def bad_plans(ctx: Context) -> None:
    await (length.s() | half.s()).enqueue()  # E argument missing
    await (length.s() | half.s()).enqueue(1)  # E wrong type
    wrong: int = ctx.replace(send.s(1, to="a"))  # E gives a text
    ctx.replace(length)  # E forgotten .s()
    ctx.replace(length.s())  # E argument missing
    ctx.add([length.s("a")])  # E signatures, not a list of them
    ctx.add(length.s())  # E argument missing
    ctx.add(length("a"))  # E a call, not a signature


async def bad_options() -> None:
    await send.options(dely=1).enqueue(1, to="x")  # E no such option
    send.options(1)  # E options are named
    send.options(retry="3")  # E a Retry or a number
    send.options(timeout=(1, 2, 3))  # E soft and hard, no more
    send.options(at="tomorrow")  # E a datetime
    send.options(delay=b"5m")  # E a duration
    send.options(priority="high")  # E a number from 0 to 9
    send.options(meta=["a"])  # E a mapping
    send.options(key=42)  # E a text
    send.options(tx=42)  # E a connection or a session
    await send.options(delay=1).enqueue("1", to="x")  # E wrong type behind options
    Retry(5, 30)  # E the rest of a Retry is named
    Retry(on=(3,))  # E exception classes
    App(url=3)  # E a text
    App("sqlite:///:memory:", "shop")  # E the name is named


async def bad_results(job: Job[str]) -> None:
    length_in_bytes: int = await job.result()  # E a text, not a number
    wrong: Job[int] = await send.enqueue(1, to="x")  # E a handle of another result
    state: str = await job.retry()  # E gives nothing
    job.status().state  # E forgotten await
    job.result().upper()  # E forgotten await
    State.PENDING  # E no such state
    (await job.status()).state = State.DONE  # E a status is frozen
    awaited: int = await job  # E the result of another type
    (await job.status()).args  # E arguments are in the details
    app.jobs(stat="dead")  # E a filter that does not exist
    app.jobs(older=[1])  # E an age that is none
    app.jobs().everything()  # E an action that does not exist
    send.job("0198").id  # E a look-up without await
    await app.queue("mail").pause(5)  # E a reason that is no text


async def bad_plain_calls(ctx: Context[Deps]) -> None:
    render(7) + b""  # E forgotten await
    await half(1.0)  # E a sync task is called plainly
    await send("1", to="x")  # E wrong type
    await render(ctx, "x")  # E wrong type behind the context
    await bare(Deps("x"), "a")  # E deps are no context
    await send.options(delay=1)(1, to="x")  # E forgotten .enqueue
    add_task(send, "1", to="a")  # E wrong type of a call in the background
    add_task(bare, "a", widht=3)  # E no such keyword of a call in the background
    ctx.deps.smpt  # E no such dependency


@app.task(prioritty=3)  # E no such option of a task
async def misspelt(order_id: int) -> None: ...


@app.task("high")  # E options are named
async def unnamed(order_id: int) -> None: ...


@high(queue=3)  # E a text
async def numbered(order_id: int) -> None: ...


@app.task(process="yes")  # E True or False
async def elsewhere() -> None: ...


@app.task(retry="often")  # E a Retry or a number
async def stubborn(order_id: int) -> None: ...


@app.task(result_ttl=["1h"])  # E a duration
async def remembered(order_id: int) -> None: ...


@app.task
async def untyped_first(doc, n: int = 1) -> str:  # E every checker wants an annotation
    return str(doc) * n


async def bad_untyped() -> None:
    await untyped_first.enqueue({"a": 1}, n=2)
    await untyped_first.enqueue()  # E pyright: it is still an argument
    await untyped_first.enqueue(1, "x")  # E pyright: wrong type behind it


async def bad_batches() -> None:
    await embed.enqueue(["a"])  # E a list is no item
    await embed.enqueue(5)  # E wrong type of an item
    await embed.enqueue("a", "b")  # E one item
    await embed("a")  # E a plain call takes a list
    wrong: Job[list[float]] = await embed.enqueue("a")  # E one result


@app.task(batch=64)  # E a Batch
async def numbered_batch(items: list[str]) -> list[str]:
    return items


@app.task(batch=Batch(64))  # E it takes no list
async def no_list(item: int) -> list[int]:
    return [item]

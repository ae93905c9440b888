"""Child processes from close by: the words, the lines, the pool."""

import asyncio
import json
import logging  # noqa: TID251 - what is under test
import os
import re
import signal  # noqa: TID251 - the same
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durio.host import child_pool
from durio.host.child_log import Forwarder, replay, wanted_level
from durio.host.child_pool import ChildProcessPool
from durio.host.child_process import crash_stack, describe_exit, kill_group
from durio.host.child_wire import (
    FRAME_BYTES_MAX,
    AppOrigin,
    ChildRun,
    End,
    Finished,
    ForwardedRecord,
    Frames,
    Interrupt,
    Leaving,
    LoadFailed,
    ProgressUpdate,
    Ready,
    Setup,
    TaskOrigin,
    Warn,
    encode_frame,
    from_child,
    to_child,
)
from durio.host.processes import cores, cpu_seconds_of, own_rss_bytes, rss_bytes_of
from durio.model.errors import ChildFailed, InvariantBroken
from durio.model.job import Claim, NewJob
from durio.model.logs import OnEnd
from durio.model.outcome import KeepRule, Outcome, OutcomeKind
from durio.model.plan_change import AddedNode, PlanChange, PreparedPlan
from durio.model.settings import PayloadSettings, Settings
from durio.telemetry.emit import Emitter, JobEvent
from durio.telemetry.log import install_job_fields, new_records

pytestmark = pytest.mark.slow  # real processes, servers or seconds

BOUND_SECONDS = 60
CLAIM = Claim(
    b"id" * 8, 3, "e2e:default", 4, "e2e.work", b"[[],{}]", 1, 2, 0, 0, None, None
)
ORIGIN = AppOrigin(
    None, [TaskOrigin("e2e.work", "jobs", "work")], ["/x"], None, "/x/main.py"
)
SETUP = Setup(ORIGIN, "sqlite:///x.db", "/x", Settings(), "host/7", 20)
TO_CHILD = [SETUP, ChildRun(CLAIM), Warn(), Interrupt("stop"), End()]
OUTCOME = Outcome(b"id", 3, 0, b"[1]", 60.0, KeepRule(5.0, 10, "bucket"), error=b"{}")
NEW_JOB = NewJob(b"new", "e2e:default", 4, "e2e.work", b"[[],{}]", on_end=(OnEnd("l"),))
CHANGE = PlanChange(
    PreparedPlan(b"plan", [NEW_JOB], b'"e2e.work"', None, 1.5),
    (AddedNode(1 << 52, NEW_JOB, b'"e2e.work"'),),
)
EVENT = JobEvent("job.dead", b"id", "e2e.work", "e2e:default", 2, meta={"a": [1]})
FROM_CHILD = [
    Ready(["e2e.work"]),
    LoadFailed("ValueError: no", "Traceback"),
    Leaving(7),
    ProgressUpdate(b"{}"),
    ForwardedRecord(
        "shop", 20, "text", 1.5, ("f.py", 3, "main"), "", b"{}", in_job=True
    ),
    Finished(OUTCOME, EVENT, 1000, 0.5),
    Finished(OUTCOME, None, 1000, 0.5),
    Finished(OUTCOME._replace(change=CHANGE, is_quiet=True), None, 1000, 0.5),
]


# --- words


@pytest.mark.parametrize("word", TO_CHILD, ids=lambda word: type(word).__name__)
def test_a_word_to_a_child_arrives_as_it_was(word: Any):
    (body,) = Frames().feed(encode_frame(word))
    assert to_child.decode(body) == word


@pytest.mark.parametrize("word", FROM_CHILD, ids=lambda word: type(word).__name__)
def test_a_word_from_a_child_arrives_as_it_was(word: Any):
    (body,) = Frames().feed(encode_frame(word))
    assert from_child.decode(body) == word


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 50))
def test_frames_do_not_care_how_bytes_arrive(told: list[bytes], size: int):
    sent = b"".join(encode_frame(ProgressUpdate(each)) for each in told)
    frames, bodies = Frames(), []
    for start in range(0, len(sent), size):
        bodies += frames.feed(sent[start : start + size])
    assert [from_child.decode(body).progress for body in bodies] == told


def test_a_length_that_can_be_none_is_refused():
    with pytest.raises(InvariantBroken, match="not a frame"):
        Frames().feed((FRAME_BYTES_MAX + 1).to_bytes(4) + b"x")


def test_no_word_is_a_pickle_or_anything_but_data():
    with pytest.raises(msgspec.MsgspecError):
        to_child.decode(b"\x80\x04N.")


# --- ends


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-signal.SIGSEGV, "killed by SIGSEGV"),
        (-signal.SIGKILL, "killed by SIGKILL: perhaps out of memory"),
        (-250, "killed by signal 250"),
    ],
)
def test_an_end_in_words(code: int, told: str):
    assert describe_exit(code) == told


def test_a_crash_shows_the_frames_of_the_user():
    ours = str(Path(child_pool.__file__).parents[1])
    told = (
        "Fatal Python error: Segmentation fault\n\n"
        "Thread 0x1 (most recent call first):\n"
        '  File "/lib/other.py", line 1 in other\n\n'
        "Current thread 0x2 (most recent call first):\n"
        '  File "/lib/ctypes.py", line 5 in string_at\n'
        '  File "/shop/jobs.py", line 30 in crash\n'
        f'  File "{ours}/host/executors.py", line 2 in body\n'
        '  File "/lib/threading.py", line 3 in run\n\n'
        "Extension modules: msgspec._core (total: 1)\n"
    )
    assert crash_stack(told).splitlines() == [
        "Fatal Python error: Segmentation fault",
        "Current thread 0x2 (most recent call first):",
        '  File "/lib/ctypes.py", line 5 in string_at',
        '  File "/shop/jobs.py", line 30 in crash',
    ]
    assert crash_stack("") == ""


def test_killing_nobody_does_no_harm():
    kill_group(2**22 + 1)  # beyond every pid


@pytest.mark.proves("L13")
def test_what_a_process_uses():
    assert rss_bytes_of(os.getpid()) == pytest.approx(own_rss_bytes(), rel=0.5)
    assert (cpu_seconds_of(os.getpid()) or 0) > 0
    assert rss_bytes_of(2**22 + 1) is None
    assert cpu_seconds_of(2**22 + 1) is None
    assert 1 <= cores() <= (os.cpu_count() or 1)


# --- logs


class Fields:
    def __init__(self) -> None:
        self.job_id, self.task, self.queue, self.number = b"\0" * 16, "e2e.t", "q", 2
        self.records = new_records()


class Nasty:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def forwarded(log: logging.Logger) -> list[ForwardedRecord]:
    told: list[ForwardedRecord] = []
    log.handlers[:] = [Forwarder(told.append)]
    log.propagate = False
    log.setLevel(logging.INFO)
    return told


def test_a_record_travels_with_its_extras_and_its_error(
    caplog: pytest.LogCaptureFixture,
):
    install_job_fields()
    told = forwarded(logging.getLogger("childs.own"))
    try:
        int("x")
    except ValueError:
        logging.getLogger("childs.own").exception(
            "took %d of %s", 3, "it", extra={"shelf": 7, "what": [1], "bad": Nasty()}
        )
    logging.getLogger("childs.own").info("%d", "no number")
    assert told[0].text == "took 3 of it"
    assert json.loads(told[0].extra) == {"shelf": 7, "what": "[1]"}
    assert told[0].error.endswith("base 10: 'x'")
    assert "cannot be formatted" in told[1].text

    fields = Fields()
    name = "workers.own"
    with caplog.at_level(logging.INFO, logger=name):
        replay(msgspec.structs.replace(told[0], name=name, in_job=True), fields)
        replay(msgspec.structs.replace(told[1], name=name), fields)
        low = msgspec.structs.replace(told[1], name=name, level=5)
        replay(low, None)
    first, second = caplog.records
    assert (first.getMessage(), first.shelf, first.task) == ("took 3 of it", 7, "e2e.t")
    assert first.created == told[0].created
    assert first.exc_text == told[0].error
    assert not hasattr(second, "job_id")
    assert list(fields.records) == [first]
    assert wanted_level() <= logging.CRITICAL


def hostile_records() -> list[logging.LogRecord]:
    """Made of what a log call accepts, and nobody would expect."""
    names = ["plain", "a\ud800b", None]
    extras: list[dict[Any, Any]] = [
        {"n": 2**70},
        {1: 2},
        {"bad\ud800": "\ud800"},
        {"event": Nasty(), "fields": {"n": 2**70, ("a",): {1}}},
        {"fields": "\ud800"},
        {"n": 10**5000},
    ]
    records = [logging.makeLogRecord({"name": name, "msg": "m"}) for name in names]
    for extra in extras:
        record = logging.makeLogRecord({"name": "plain", "msg": "m\ud800"})
        record.levelno = logging.ERROR
        record.__dict__.update(extra)
        records.append(record)
    return records


def test_every_record_travels(caplog: pytest.LogCaptureFixture):
    for record in hostile_records():
        told: list[bytes] = []
        Forwarder(lambda word, told=told: told.append(encode_frame(word))).emit(record)
        (body,) = Frames().feed(told[0])
        word = from_child.decode(body)
        assert isinstance(word, ForwardedRecord)
        replay(word, None)
    # The first three are of no level, so that nobody wants them.
    assert len(caplog.records) == len(hostile_records()) - 3
    assert caplog.records[0].n == 2**70
    assert caplog.records[3].fields["n"] == 2**70


def test_a_log_call_fails_nobody(capsys: pytest.CaptureFixture[str]):
    def refuse(word: ForwardedRecord) -> None:
        raise OverflowError(word.text)

    log = logging.getLogger("childs.refused")
    log.handlers[:] = [Forwarder(refuse)]
    log.warning("not to be sent")
    assert "not to be sent" in capsys.readouterr().err


def test_a_handler_that_fails_stops_no_other_words():
    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError(record.name)

    log = logging.getLogger("workers.failing")
    log.handlers[:] = [Failing()]
    log.propagate = False
    replay(
        ForwardedRecord(
            "workers.failing", 40, "m", 1.5, ("f", 1, ""), "", b"{}", in_job=False
        ),
        None,
    )


# --- the pool

MODULE = """
import os
from durio import App
app = App(name="e2e")
@app.task(process=True)
def work() -> int: return os.getpid()
"""


class RecordingSender:
    """Hears about one job."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.progress: list[bytes] = []
        self.over = asyncio.Event()
        self.outcome: Outcome | None = None
        self.was_first: bool | None = None  # how its child has died

    def begun(self) -> None:
        self.told.append("begun")

    def returned(self) -> None:
        self.told.append("returned")

    def progressed(self, progress: bytes) -> None:
        self.progress.append(progress)

    def finished(self, outcome: Outcome, event: Any) -> None:
        del event
        self.outcome = outcome
        self.told.append("finished")
        self.over.set()

    def crashed(self, how: str, stack: str, *, is_first: bool) -> None:
        del stack
        self.was_first = is_first
        self.told.append(how)
        self.over.set()


def setup_of(folder: Path, text: str, app: str = "childs_app:app") -> Setup:
    (folder / "childs_app.py").write_text(text)
    origin = AppOrigin(
        app,
        [TaskOrigin("e2e.work", "childs_app", "work")],
        [str(folder), *sys.path],
        None,
        None,
    )
    return Setup(origin, "sqlite:///:memory:", str(folder), Settings(), "host/7", 20)


def with_child_pool(setup: Setup, body: Any, **options: Any) -> Any:
    async def main() -> Any:
        chosen = {"count": 1, "jobs_max": 0, "rss_max": 0, **options}
        nursery = ChildProcessPool(setup, Emitter(), **chosen)
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                return await body(nursery)
        finally:
            await nursery.close()
            assert nursery.vitals().count == 0

    return asyncio.run(main())


async def run_one(child_pool: ChildProcessPool) -> RecordingSender:
    teller = RecordingSender()
    child_pool.send(CLAIM, teller)
    await teller.over.wait()
    return teller


def ignore_error(_error: Any) -> None:
    raise AssertionError("they start")


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """After three starts that failed, and hardly a pause between them."""
    monkeypatch.setattr(child_pool, "FAILURES_MAX", 3)
    monkeypatch.setattr(child_pool, "BACKOFF_FIRST", 0.001)


async def opened_to_fail(
    child_pool: ChildProcessPool, *, ahead: bool
) -> "asyncio.Future[object]":
    """Why it will have been given up, when it is."""
    given_up = asyncio.get_running_loop().create_future()
    await child_pool.open(ahead=ahead, broken=given_up.set_result)
    return given_up


def test_a_job_goes_there_and_back(tmp_path: Path):
    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        first, second = await run_one(nursery), await run_one(nursery)
        assert first.told == second.told == ["begun", "finished"]
        assert first.outcome is not None
        assert second.outcome is not None
        assert first.outcome.result == second.outcome.result
        vitals = nursery.vitals()
        assert vitals.count == 1
        assert vitals.rss_bytes > 1 << 20
        assert vitals.cpu_seconds > 0

    with_child_pool(setup_of(tmp_path, MODULE), body)


def test_progress_comes_from_the_child(tmp_path: Path):
    text = MODULE.replace("import App", "import App, Context").replace(
        "def work() -> int: return os.getpid()",
        "async def work(ctx: Context) -> None: await ctx.progress(3, 4)",
    )
    sender = with_child_pool(setup_of(tmp_path, text), run_one)
    assert sender.told == ["begun", "finished"]
    assert [json.loads(each)["done"] for each in sender.progress] == [3]


def test_children_start_with_the_first_job_if_not_before(tmp_path: Path):
    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=False, broken=ignore_error)
        assert nursery.vitals().count == 0
        assert (await run_one(nursery)).told == ["begun", "finished"]

    with_child_pool(setup_of(tmp_path, MODULE), body)


def test_a_crash_is_told_and_another_takes_over(tmp_path: Path):
    crashing = MODULE.replace("return os.getpid()", "os._exit(9)")

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        for _ in range(2):
            begun, how = (await run_one(nursery)).told
            assert begun == "begun"
            assert how.endswith("died: exit code 9")

    with_child_pool(setup_of(tmp_path, crashing), body)


@pytest.mark.parametrize(
    ("text", "app", "words"),
    [
        ("raise KeyError('mine')", "childs_app:app", ["KeyError: 'mine'"]),
        ("import sys; sys.exit(3)", "childs_app:app", ["SystemExit: 3"]),
        ("app = 7", "childs_app:app", ["app is or gave a int, not an App [usage]"]),
        (MODULE, "childs_app:nothing", ["AttributeError", "nothing"]),
        ("import os; os._exit(7)", "childs_app:app", ["it died: exit code 7"]),
        (
            "from durio import App\napp = App(name='e2e')",
            "childs_app:app",
            ["does not know the task e2e.work"],
        ),
    ],
)
def test_an_app_that_cannot_be_loaded_is_said_at_once(
    tmp_path: Path, text: str, app: str, words: list[str]
):
    async def body(nursery: ChildProcessPool) -> None:
        with pytest.raises(ChildFailed) as caught:
            await nursery.open(ahead=True, broken=ignore_error)
        for word in words:
            assert word in caught.value.what
        assert caught.value.cure
        assert "Write MODULE:APP" not in caught.value.what  # its place is the cure
        assert "durio/app/child.py" not in caught.value.traceback_text

    with_child_pool(setup_of(tmp_path, text, app), body)


def test_starts_that_keep_failing_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    give_up_soon(monkeypatch)

    async def body(nursery: ChildProcessPool) -> None:
        given_up = await opened_to_fail(nursery, ahead=False)
        teller = RecordingSender()
        errand = nursery.send(CLAIM, teller)
        assert isinstance(await given_up, ChildFailed)
        assert teller.told == []
        assert errand.withdraw()
        assert not errand.withdraw()

    with_child_pool(setup_of(tmp_path, "raise KeyError('mine')"), body)


def test_one_that_is_never_ready_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(child_pool, "START_SECONDS", 0.5)

    async def body(nursery: ChildProcessPool) -> None:
        with pytest.raises(ChildFailed, match=r"not ready within 0\.5 s"):
            await nursery.open(ahead=True, broken=ignore_error)

    with_child_pool(setup_of(tmp_path, "import time\nwhile True: time.sleep(1)"), body)


def test_a_large_job_goes_there_and_back(tmp_path: Path):
    """Far more than a socket holds, both ways."""
    large = MODULE.replace(
        "work() -> int: return os.getpid()", "work(x: str) -> str: return x"
    )
    text = b"x" * (1 << 23)

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        teller = RecordingSender()
        nursery.send(CLAIM._replace(payload=b'[["' + text + b'"],{}]'), teller)
        await teller.over.wait()
        assert teller.outcome is not None
        assert teller.outcome.result == b'"' + text + b'"'

    setup = setup_of(tmp_path, large)
    bounds = PayloadSettings(result_bytes_max=1 << 24)
    with_child_pool(
        msgspec.structs.replace(setup, settings=Settings(payload=bounds)), body
    )


def test_a_child_that_lost_its_line_ends_itself(tmp_path: Path):
    """What it did can be told to nobody: another child must do it again."""
    closing = MODULE.replace(
        "return os.getpid()", "import sys; os.close(int(sys.argv[1]))"
    )

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        begun, how = (await run_one(nursery)).told
        assert begun == "begun"
        assert "its connection to the worker is closed" in how
        assert "memory" not in how

    with_child_pool(setup_of(tmp_path, closing), body)


def test_a_process_that_a_task_forks_is_stopped_as_any_other(tmp_path: Path):
    """A child passes SIGTERM over; its own children must not."""
    forking = MODULE.replace(
        "return os.getpid()",
        """
    import multiprocessing, time
    helper = multiprocessing.get_context("fork").Process(target=time.sleep, args=(99,))
    helper.start()
    helper.terminate()
    helper.join(30)
    return helper.exitcode
""",
    )

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        outcome = (await run_one(nursery)).outcome
        assert outcome is not None
        assert outcome.result == b"-15"

    with_child_pool(setup_of(tmp_path, forking), body)


def in_work(lines: str) -> str:
    """The module whose task does this."""
    body = "\n".join(f"    {line}" for line in lines.strip().splitlines())
    return MODULE.replace(
        "def work() -> int: return os.getpid()", f"def work():\n{body}"
    )


def test_what_a_task_forks_may_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """It has no line to the worker, and must not take its innocent parent with it."""
    forking = MODULE.replace(
        "@app.task(process=True)\ndef work() -> int: return os.getpid()",
        """
import logging, multiprocessing
from durio import Context
log = logging.getLogger("shop")
def aside(number):
    log.warning("aside %d", number)
    Context.current().progress(number)
    return number
@app.task(process=True)
def work() -> list[int]:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=aside, args=(7,))
    process.start()
    process.join()
    with context.Pool(2) as pool:
        return [process.exitcode, *pool.map(aside, range(4))]
""",
    )

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        teller = await run_one(nursery)
        assert teller.told == ["begun", "finished"]
        assert teller.outcome is not None
        assert teller.outcome.result == b"[0,0,1,2,3]", teller.outcome

    with_child_pool(setup_of(tmp_path, forking), body)
    assert re.search(r"aside 7 \S+ [0-9a-f-]{36} queue=", capfd.readouterr().err)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_fork_that_comes_back_ends_nothing_but_itself(tmp_path: Path, kind: str):
    twice = MODULE.replace("def work", f"{kind} work").replace(
        "return os.getpid()",
        """
    forked = os.fork()
    if forked:
        os.waitpid(forked, 0)
    return forked and 1
""",
    )

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        teller = await run_one(nursery)
        assert teller.told == ["begun", "finished"]
        assert teller.outcome is not None
        assert teller.outcome.result == b"1"

    with_child_pool(setup_of(tmp_path, twice), body)


def test_the_error_of_a_job_with_unusual_meta_is_told(tmp_path: Path):
    failing = in_work("raise ValueError('mine')")

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        teller = RecordingSender()
        meta = b'{"meta":{"n":%d},"retry":{"retries":0}}' % 2**70
        nursery.send(CLAIM._replace(opts=meta), teller)
        await teller.over.wait()
        assert teller.outcome is not None
        assert b"ValueError" in (teller.outcome.error or b"")

    with_child_pool(setup_of(tmp_path, failing), body)


def test_an_end_that_cannot_be_sent_is_a_failure_at_once(tmp_path: Path):
    large = in_work("""
from durio.host import child_wire
child_wire.FRAME_BYTES_MAX = 5_000
return "x" * 6_000
""")

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        teller = await run_one(nursery)
        assert teller.told == ["begun", "finished"]
        assert teller.outcome is not None
        assert teller.outcome.kind == OutcomeKind.DEAD
        assert b"a message of 6" in (teller.outcome.error or b"")

    with_child_pool(setup_of(tmp_path, large), body)


@pytest.mark.parametrize(
    ("said", "told"),
    [(rb"\xff" * 64, "is not a frame"), (rb"\0\0\0\1\xc1", "unreadable message")],
)
def test_a_child_that_speaks_nonsense_is_killed_and_that_is_said(
    tmp_path: Path, said: bytes, told: str
):
    speaking = in_work(f"""
import sys, time
os.write(int(sys.argv[1]), b"{said.decode()}")
time.sleep(99)
""")

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        begun, how = (await run_one(nursery)).told
        assert begun == "begun"
        assert "killed by its worker: " in how
        assert told in how
        assert "memory" not in how

    with_child_pool(setup_of(tmp_path, speaking), body)


def test_a_store_in_memory_is_out_of_reach(tmp_path: Path):
    asking = MODULE.replace("return os.getpid()", "work.enqueue_sync()")

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        outcome = (await run_one(nursery)).outcome
        assert outcome is not None
        assert b"cannot reach a store in memory" in (outcome.error or b"")

    with_child_pool(setup_of(tmp_path, asking), body)

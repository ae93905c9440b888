"""`durio worker --processes N` with real processes, signals, terminals and kills."""

import asyncio
import json
import os
import pty
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from durio.app.worker_commands import send_command
from durio.model.job import DONE, READY, RUNNING
from tests.e2e.test_shutdown import check_uncharged, insist
from tests.e2e.workers import ROOT, Place, Process, now_ns, seeded, wait_until

SECONDS = 60.0
AGAIN_SECONDS = 2.0  # the promise for a supervised child that dies
CUT_SHORT = 143
CRASH_LOOP = 9


class Gone(NamedTuple):
    """A worker process that was ended, for the judgement of what ran again."""

    pid: int


def fleet(place: Place, processes: int, *options: str, **settings: Any) -> Process:
    """A supervisor whose workers all claim."""
    process = place.begin_worker("--processes", str(processes), *options, **settings)
    started(process, processes)
    return process


def started(process: Process, count: int) -> None:
    """Until so many workers have been ready, one after another or at once."""

    def have() -> bool:
        assert process.exit_code is None, process.log
        return len(process.events("worker.started")) >= count

    wait_until(have, SECONDS, f"{count} workers have started; see {process.log_path}")


def worker_pids(process: Process) -> list[int]:
    return [pid for pid in process.children() if not is_zombie(pid)]


def is_zombie(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and not is_zombie(pid)


# --- a worker dies


@pytest.mark.proves("M115")
@pytest.mark.parametrize("processes", [2, 1])
def test_jobs_of_a_killed_worker_run_again_at_once(
    place: Place, processes: int
) -> None:
    """With a sibling, which is told to look; and without one: the replacement looks."""
    ids = place.enqueue("held", *[()] * 4)
    process = fleet(place, processes)
    place.wait_for("start", 4)
    (victim, *_) = [p for p in worker_pids(process) if place.ledger.of("start", pid=p)]
    killed_ns = now_ns()
    os.kill(victim, signal.SIGKILL)
    held = place.ledger.jobs("start", pid=victim)
    place.wait_for_attempt(2, len(held))
    seen = place.seconds_to_run_again(Gone(victim), killed_ns)
    print(
        f"{len(held)} jobs of a killed worker, {processes} processes: started again "
        f"after {seen:.2f} s (aim {AGAIN_SECONDS:g} s)"
    )
    assert seen < 3 * AGAIN_SECONDS
    place.open_gate()
    rows = place.check_all_done(ids, SECONDS, killed=(Gone(victim),))
    assert sum(row.losses for row in rows.values()) == len(held)
    wait_until(lambda: len(worker_pids(process)) == processes, SECONDS, "replaced")
    (told,) = process.events("process.ended")
    assert (told["pid"], told["exit_code"]) == (victim, -9)
    process.send(signal.SIGTERM)
    assert process.ended(SECONDS) == 0
    assert not any(is_there(pid) for pid in [victim, *process.children()])


def test_dead_workers_are_reaped(place: Place) -> None:
    """Killed again and again: never a zombie, always a successor."""
    process = fleet(place, 2)
    for round_ in range(3):
        victim = worker_pids(process)[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(
            lambda v=victim: v not in process.children(), SECONDS, "it is reaped"
        )
        started(process, 3 + round_)
    assert not [pid for pid in process.children() if is_zombie(pid)]


# --- the loop is blocked


@pytest.mark.proves("M103", "M114")
@pytest.mark.parametrize(
    "task", ["block_past_limit", "spin_past_limit", "block_in_a_part"]
)
def test_a_blocked_worker_is_replaced(place: Place, task: str) -> None:
    """Stack in the log, process replaced, the guilty charged, its neighbours not."""
    neighbours = place.enqueue("held", *[()] * 3)
    process = fleet(place, 1)
    place.wait_for("start", 3)
    (first,) = worker_pids(process)
    (guilty,) = place.enqueue(task, ())
    wait_until(lambda: process.events("process.blocked"), SECONDS, "it is noticed")
    (told,) = process.events("process.blocked")
    assert (told["pid"], told["exit_code"]) == (first, 70)
    blocked = process.events("loop.blocked")[0]
    assert f"in {'part' if task == 'block_in_a_part' else task}" in blocked["stack"]
    place.open_gate()
    rows = place.check_all_done([guilty, *neighbours], SECONDS, killed=(Gone(first),))
    assert (rows[guilty].retried, rows[guilty].losses) == (1, 0)
    assert [error["type"] for error in rows[guilty].errors] == ["HardTimeLimit"]
    assert {(rows[job].retried, rows[job].losses) for job in neighbours} == {(0, 0)}
    process.send(signal.SIGTERM)
    assert process.ended(SECONDS) == 0


# --- drain


PHASES: dict[str, Callable[[Place, Process], object]] = {
    "at once": lambda _place, _process: True,
    "supervisor is up": lambda _place, p: p.events("fleet.started"),
    "first process started": lambda _place, p: p.events("process.started"),
    "registered": lambda place, _p: place.select("select id from worker"),
    "claimed": lambda place, _p: place.count(RUNNING) or place.count(DONE),
    "in the middle of jobs": lambda place, _p: place.ledger.of("start"),
    "in the middle of finishes": lambda place, _p: place.ledger.of("effect"),
}


@pytest.mark.proves("M118")
@pytest.mark.parametrize("signals", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("phase", PHASES)
def test_sigterm_at_every_phase(place: Place, phase: str, signals: int) -> None:
    """Nothing lost, nothing charged, a documented exit code, nobody left behind."""
    ids = place.enqueue("nap", *[(0.05,)] * 40)
    process = place.begin_worker("--processes", "2", concurrency=4)
    wait_until(lambda: PHASES[phase](place, process), SECONDS, phase)
    process.send(signal.SIGTERM)
    if signals > 1:
        wait_until(
            lambda: process.exit_code is not None or process.events("fleet.stopping"),
            SECONDS,
            "the first is heard",
        )
        insist(process)
    # Before it has a handler, and any worker, a signal is simply fatal.
    early = {-signal.SIGTERM} if phase == "at once" else set()
    assert process.ended(SECONDS) in {0, CUT_SHORT} | early, process.log
    pids = [event["pid"] for event in process.events("process.started")]
    assert not any(is_there(pid) for pid in pids)
    assert not place.count(RUNNING)
    place.worker()
    check_uncharged(place, ids, again=tuple(Gone(pid) for pid in pids))


@pytest.mark.proves("M118")
@pytest.mark.parametrize("signals", [1, 2], ids=["once", "twice"])
def test_sigterm_at_full_speed(place: Place, signals: int) -> None:
    """In the middle of claims and commits."""
    chance, jobs = seeded(), 5000
    ids = place.enqueue_many("nothing", jobs)
    gone: list[Gone] = []
    for _ in range(2):
        process = fleet(place, 2)
        more = min(jobs, len(place.ledger.of("effect")) + chance.randrange(1, 500))
        wait_until(
            lambda more=more: len(place.ledger.of("effect")) >= more, SECONDS, "at work"
        )
        gone += [Gone(pid) for pid in worker_pids(process)]
        process.send(signal.SIGTERM)
        if signals > 1:
            wait_until(partial(insist, process), SECONDS, "it ends")
        assert process.ended(SECONDS) in {0, CUT_SHORT}, process.log
        assert not place.count(RUNNING)
    place.worker()
    check_uncharged(place, ids, again=tuple(gone) if signals > 1 else ())


@pytest.mark.proves("M118")
def test_drain_is_shown_and_exit_says_what_was_cut_short(place: Place) -> None:
    ids = place.enqueue("held", *[()] * 4)
    process = fleet(place, 2, grace_seconds=2.5)
    place.wait_for("start", 4)
    pids = worker_pids(process)
    process.send(signal.SIGTERM)
    assert process.ended(SECONDS) == CUT_SHORT
    shown = process.events("fleet.draining")
    assert max(event["running"] for event in shown) == 4
    assert len(shown) >= 2
    assert {row.state for row in place.rows().values()} == {READY}
    place.open_gate()
    place.worker()
    check_uncharged(place, ids, again=tuple(Gone(pid) for pid in pids))


@pytest.mark.proves("M118")
@pytest.mark.parametrize("processes", [0, 1], ids=["alone", "supervised"])
@pytest.mark.parametrize("how", ["grace is over", "second signal"])
def test_sigterm_is_heard_while_a_task_blocks_the_loop(
    place: Place, processes: int, how: str
) -> None:
    """`time.sleep(600)` on the loop: everything is given back, uncharged."""
    neighbours = place.enqueue("held", *[()] * 2)
    grace = {"grace_seconds": 1.0 if how == "grace is over" else 300.0}
    process = fleet(place, processes, **grace) if processes else place.worker(**grace)
    place.wait_for("start", 2)
    (guilty,) = place.enqueue("block_until_told", ())
    wait_until(lambda: process.events("loop.blocked"), SECONDS, "the loop is blocked")
    process.send(signal.SIGTERM)
    if how == "second signal":
        # Two at the same moment are one to the kernel.
        wait_until(lambda: insist(process), SECONDS, "it ends")
    assert process.ended(SECONDS) == CUT_SHORT, process.log
    rows = place.rows()
    assert {rows[job].state for job in [guilty, *neighbours]} == {READY}
    place.open_gate()
    gone = tuple(Gone(line.pid) for line in place.ledger.of("start"))
    place.worker()
    check_uncharged(place, [guilty, *neighbours], again=gone)


# --- the supervisor dies


@pytest.mark.proves("M115")
def test_killed_supervisor_leaves_no_orphans(place: Place) -> None:
    """Its workers see that it is gone, drain, and end."""
    ids = place.enqueue("held", *[()] * 4)
    process = fleet(place, 2)
    place.wait_for("start", 4)
    pids = worker_pids(process)
    process.kill()
    wait_until(
        lambda: len(process.events("worker.stopping")) == 2, SECONDS, "they drain"
    )
    assert len(process.events("supervisor.lost")) == 2
    place.open_gate()
    wait_until(lambda: not any(map(is_there, pids)), SECONDS, "they are gone")
    check_uncharged(place, ids)


# --- reload


@pytest.mark.proves("M118")
def test_reload_under_load_loses_nothing_and_leaves_no_gap(place: Place) -> None:
    """Three reloads while jobs flow; at every look everybody's place is taken."""
    ids = place.enqueue("nap", (0.1,))  # makes the file
    process = fleet(place, 2, concurrency=4)
    first = worker_pids(process)
    registered: list[int] = []

    def reloads() -> int:
        """How many are over; each look asks for more work, and counts workers."""
        ids.extend(place.enqueue("nap", (0.1,), (0.3,)))
        registered.append(place.select("select count(*) from worker")[0][0])
        return len(process.events("reload.ended"))

    for done in (1, 2, 3):
        process.send(signal.SIGHUP)
        wait_until(lambda done=done: reloads() >= done, SECONDS, "reloaded")
    print(
        f"{len(ids)} jobs during 3 reloads; registered workers at {len(registered)}"
        f" looks: {min(registered)} to {max(registered)}"
    )
    assert min(registered) >= 2
    assert max(registered) <= 3
    assert not {*first} & {*worker_pids(process)}
    assert len(process.events("process.replaced")) == 6
    check_uncharged(place, ids)
    assert len(place.ledger.of("start")) == len(ids)
    process.send(signal.SIGTERM)
    assert process.ended(SECONDS) == 0


def test_reload_of_broken_code_changes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = place.folder / "flag"
    monkeypatch.setenv("E2E_BROKEN", "cannot be imported any more")
    monkeypatch.setenv("E2E_FLAG", str(flag))
    process = place.run("durio", "worker", "tests.e2e.broken", "--processes", "2")
    started(process, 2)
    pids = worker_pids(process)
    flag.touch()
    process.send(signal.SIGHUP)
    wait_until(lambda: process.events("reload.failed"), SECONDS, "it fails")
    (told,) = process.events("reload.failed")
    assert "a mistake of the user's own" in told["error"]
    assert sorted(worker_pids(process)) == sorted(pids)
    flag.unlink()
    process.send(signal.SIGHUP)
    wait_until(lambda: process.events("reload.ended"), SECONDS, "it works again")
    process.send(signal.SIGTERM)
    assert process.ended(SECONDS) == 0


# --- what cannot work


@pytest.mark.parametrize("form", ["text", "json"])
def test_import_error_is_shown_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("E2E_BROKEN", "cannot be imported")
    options = ["--json"] if form == "json" else []
    process = place.run(
        "durio", "worker", "tests.e2e.broken", "--processes", "3", *options
    )
    assert process.ended(SECONDS) == 4
    if form == "json":
        (error,) = [
            json.loads(row) for row in process.log.splitlines() if "cure" in row
        ]
        assert error["error"]["code"] == "app_import_failed"
        assert "broken.py" in error["error"]["traceback"]
    else:
        assert process.log.count("Traceback (most recent call last)") == 1
        assert process.log.count('raise ValueError("a mistake of') == 1
        assert "supervise" not in process.log


def test_crash_loop_has_an_exit_code_of_its_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("E2E_BROKEN", "crashes")
    process = place.run("durio", "worker", "tests.e2e.broken", "--processes", "4")
    assert process.ended(SECONDS) == CRASH_LOOP
    assert "crash_loop" in process.log
    assert "signal 9" in process.log


@pytest.mark.parametrize(
    ("url", "code"), [("sqlite:////proc/no/such/folder.db", 3), ("what://x", 2)]
)
def test_hopeless_store_ends_it_with_the_same_code(
    place: Place, url: str, code: int
) -> None:
    place.url = url
    process = place.begin_worker("--processes", "2")
    assert process.ended(SECONDS) == code
    assert process.log.count("error:") == 1


def test_settings_alone_make_a_supervisor(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that read them becomes it, under the same id, without the App."""
    monkeypatch.setenv("E2E_BROKEN", "wants two")
    process = place.run("durio", "worker", "tests.e2e.broken")
    started(process, 2)
    assert len(worker_pids(process)) == 2
    command = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    assert b"--processes" in command
    assert "apsw" not in process.maps()
    process.send(signal.SIGTERM)
    assert process.ended(SECONDS) == 0


# --- recycling, orders, bursts, vitals

QUICK_BEATS = {"lease_seconds": 2, "heartbeat_seconds": 0.2}


def test_recycled_after_so_many_jobs(place: Place) -> None:
    ids = place.enqueue_many("nothing", 500)
    process = fleet(place, 1, "--recycle-jobs", "100", **QUICK_BEATS)
    check_uncharged(place, ids)
    wait_until(lambda: process.events("process.replaced"), SECONDS, "it is replaced")
    process.send(signal.SIGTERM)
    assert process.ended(SECONDS) == 0
    assert not process.events("process.ended")


def test_workers_that_are_ordered_to_drain_are_not_replaced(place: Place) -> None:
    place.enqueue("nothing", ())
    process = fleet(place, 2, **QUICK_BEATS)
    order_drains(place, 1)
    wait_until(lambda: process.events("process.drained"), SECONDS, "one has drained")
    assert process.exit_code is None
    order_drains(place, 1)
    assert process.ended(SECONDS) == 0
    assert len(process.events("process.started")) == 2


def order_drains(place: Place, count: int) -> None:
    async def ask() -> None:
        async with place.app() as app:
            store = await app.store()
            for row in (await store.workers("e2e"))[:count]:
                await send_command(store, app.clock, row, "drain", by="a test")

    asyncio.run(ask())


def test_burst_ends_when_all_have(place: Place) -> None:
    ids = place.enqueue_many("nothing", 200)
    # `--`: what a worker is told besides must not come after it.
    flags = ("--processes", "2", "--burst", "--json")
    process = place.run("durio", "worker", *flags, "--", "tests.e2e.jobs:app")
    assert process.ended(SECONDS) == 0
    check_uncharged(place, ids)
    last = json.loads(process.log.splitlines()[-1])
    assert last["exit_code"] == 0
    assert (
        sum(
            '"cut_short":' in row and '"event"' not in row
            for row in process.log.splitlines()
        )
        == 1
    )


def test_vitals_are_in_the_store(place: Place) -> None:
    ids = place.enqueue_many("nothing", 50)
    fleet(place, 2, **QUICK_BEATS)
    place.wait_final(ids, SECONDS)

    def told() -> list[dict[str, Any]]:
        found = [row[0] for row in place.select("select vitals from worker")]
        vitals = [json.loads(text) for text in found if text]
        is_whole = len(vitals) == 2 and sum(ended(v) for v in vitals) == 50
        return vitals if is_whole else []

    def ended(vitals: Any) -> int:
        return vitals["ended"] if isinstance(vitals, dict) else vitals[2]

    assert wait_until(told, SECONDS, "both have told of 50 jobs, in all")


# --- systemd


@contextmanager
def listening(address: str) -> Any:
    """A socket as systemd has one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(address.replace("@", "\0", 1))
        ear.settimeout(SECONDS)
        yield ear


def received(ear: socket.socket, word: str) -> dict[str, str]:
    """Wait for the datagram that says this."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        lines = ear.recv(4096).decode().split("\n")
        told = dict(line.split("=", 1) for line in lines)
        if word in told:
            return told
    raise AssertionError(f"{word} was never told")


@pytest.mark.parametrize("kind", ["file", "abstract"])
@pytest.mark.parametrize("processes", [0, 2], ids=["alone", "supervised"])
def test_systemd_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, processes: int
) -> None:
    name = f"@durio-{os.getpid()}-{processes}"
    address = str(place.folder / "notify") if kind == "file" else name
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    options = ["--processes", str(processes)] if processes else []
    with listening(address) as ear:
        process = place.begin_worker(*options, **QUICK_BEATS)
        assert "ready" in received(ear, "READY")["STATUS"]
        received(ear, "WATCHDOG")
        if processes:
            started(process, processes)
            process.send(signal.SIGHUP)
            told = received(ear, "RELOADING")
            assert 0 < int(told["MONOTONIC_USEC"]) <= now_ns() // 1000
            received(ear, "READY")
        place.enqueue("held", ())
        place.wait_for("start", 1)
        process.send(signal.SIGTERM)
        received(ear, "STOPPING")
        place.open_gate()
        assert process.ended(SECONDS) == 0


# --- a terminal


def in_terminal(place: Place, *options: str) -> tuple[int, int]:
    """The command in the foreground of a terminal of its own: pid, our end of it."""
    environ = {**place.environ({}), "DURIO_LOG__FORMAT": "text"}
    command = [sys.executable, "-m", "durio", "worker", "tests.e2e.jobs:app", *options]
    pid, end = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, command, environ)  # noqa: S606 - ourselves
    return pid, end


def read_until(end: int, pattern: str) -> str:
    """What the terminal shows, up to this."""
    shown, deadline = "", time.monotonic() + SECONDS
    while not re.search(pattern, shown):
        assert time.monotonic() < deadline, shown
        try:
            shown += os.read(end, 65536).decode(errors="replace")
        except OSError as error:  # the other end is closed
            raise AssertionError(shown) from error
    return shown


def exit_code_of(pid: int) -> int:
    """Once it has ended; it is reaped."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("it does not end")


@pytest.mark.proves("M118")
def test_ctrl_c_in_a_terminal_drains(place: Place) -> None:
    """It reaches the supervisor alone, which lets its workers end in good order."""
    ids = place.enqueue("held", *[()] * 4)
    pid, end = in_terminal(place, "--processes", "2")
    try:
        place.wait_for("start", 4)
        os.write(end, b"\x03")
        read_until(end, r"draining: \d running, \d+ s of grace left")
        place.open_gate()
        read_until(end, "fleet.stopped")
        assert exit_code_of(pid) == 0
    finally:
        os.close(end)
    check_uncharged(place, ids)


def test_a_closed_terminal_is_a_stop_and_no_reload(place: Place) -> None:
    ids = place.enqueue("held", *[()] * 2)
    pid, end = in_terminal(place, "--processes", "1")
    place.wait_for("start", 2)
    place.open_gate()
    os.close(end)
    assert exit_code_of(pid) == 0
    check_uncharged(place, ids)

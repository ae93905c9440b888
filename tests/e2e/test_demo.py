"""`durio demo`: its last line is true, its exit code is honest, it leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from durio.demo import shop
from durio.demo.record import Ledger, LedgerLineKind, read_ledger
from durio.host.descendants import find_descendant, process_status
from tests.e2e.workers import ROOT, wait_until

SECONDS_MAX = 60
LAST_LINE = re.compile(r"\d+ jobs: \d+ done, \d+ dead, 0 lost, 0 doubled")
COMMAND = [sys.executable, "-m", "durio", "demo", "--seconds", "3", "--no-browser"]


def run(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the demo with its temporary folders in `folder`."""
    return subprocess.run(
        [*COMMAND, *flags],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


def test_nothing_is_lost_when_a_worker_is_killed(tmp_path: Path) -> None:
    answer = run(tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    lines = answer.stdout.splitlines()
    assert LAST_LINE.fullmatch(lines[-1])
    assert any("kill -9 of worker" in line for line in lines)
    assert any(re.search(r"runs? again, ", line) for line in lines)
    assert f"the code of this shop: {shop.__file__}" in lines
    assert "its store, ledger and logs: durio demo --keep" in lines
    (tutorial,) = re.findall(r"your own first job: (\S+) ", answer.stdout)
    assert (ROOT / tutorial).is_file()
    assert "\x1b[" not in answer.stdout
    assert any("QueueFull for" in line for line in lines)
    assert not list(tmp_path.iterdir()), "the temporary folder stays"


def test_json_on_a_named_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'shop.db'}"
    answer = run(tmp_path, "--json", "--keep", "--workers", "2", "--store", store)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    told = json.loads(answer.stdout)
    assert told["held"] is True
    assert (told["lost"], told["doubled"], told["kills"]) == (0, 0, 1)
    assert told["jobs"] == told["done"] + told["dead"]
    assert told["rerun"] >= 1
    assert sum(task["cancelled"] for task in told["tasks"].values()) == 2
    assert told["tasks"]["print_label"]["dead"] == 1
    assert told["tasks"]["open_bad_image"]["dead"] == told["poisoned"] == 1
    assert told["refused"] >= 1
    assert told["tasks"]["charge_card"]["retried"] >= 1
    assert LAST_LINE.fullmatch(told["line"])
    (kept,) = tmp_path.glob("durio-demo-*")
    entries = read_ledger(kept / "ledger")
    assert {entry.ev for entry in entries} >= {
        LedgerLineKind.ENQUEUED,
        LedgerLineKind.KILLED,
    }


def test_chaos_kills_again_and_again(tmp_path: Path) -> None:
    answer = run(tmp_path, "--json", "--chaos", "--seconds", "8", "--workers", "2")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    told = json.loads(answer.stdout)
    assert told["held"] is True
    assert told["kills"] >= 2
    assert told["rerun"] >= 2


@pytest.mark.parametrize(("which", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_signals_leave_nothing_behind(tmp_path: Path, which: str, code: int) -> None:
    demo, family = opened(tmp_path)
    demo.send_signal(signal.Signals[which])
    assert demo.wait(SECONDS_MAX) == code
    # A child may need a moment more than the worker that it ends with.
    wait_until(lambda: not alive(family), 5, f"{family} are gone")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's leash is Linux's")
def test_a_killed_demo_takes_its_workers_with_it(tmp_path: Path) -> None:
    demo, family = opened(tmp_path)
    demo.kill()
    demo.wait(SECONDS_MAX)
    wait_until(lambda: not alive(family), 30, f"{family} are gone")


def opened(folder: Path) -> tuple["subprocess.Popen[bytes]", list[int]]:
    """A demo whose shop is open, and every process of it but the demo's own."""
    log = folder.parent / f"{folder.name}.log"
    with log.open("wb") as stream:
        demo = subprocess.Popen(
            COMMAND,
            env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
            stdout=stream,
            stderr=stream,
        )
    wait_until(lambda: "the shop opens" in log.read_text(), SECONDS_MAX, "it opens")
    found = re.search(r"workers: (\d+(?:, \d+)*)", log.read_text())
    assert found is not None
    workers = [int(pid) for pid in found[1].split(", ")]
    assert len(workers) == 3
    supervisor = process_status(workers[0])
    assert supervisor is not None
    children = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    family = {*workers, supervisor.parent}
    kin = [pid for pid in children if find_descendant(pid, workers) is not None]
    assert kin, "no child processes"
    return demo, sorted({*family, *kin})


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_running(pid)]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_store_in_memory_is_refused(tmp_path: Path) -> None:
    answer = run(tmp_path, "--store", "sqlite:///:memory:")
    assert answer.returncode == 2
    assert "exists in one process only" in answer.stderr


def test_ledger_survives_a_torn_line(tmp_path: Path) -> None:
    """A line that is still on its way is not read; whole ones are, in order of time."""
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    ledger = Ledger(tmp_path)
    ledger.write(LedgerLineKind.STARTED, job="a", attempt=1)
    ledger.write(LedgerLineKind.EFFECT, job="a", attempt=1)
    ledger.close()
    (path,) = tmp_path.iterdir()
    with path.open("ab") as stream:
        stream.write(b'{"n":3,"pid":')
    entries = read_ledger(tmp_path)
    assert [(entry.n, entry.ev, entry.job) for entry in entries] == [
        (1, LedgerLineKind.STARTED, "a"),
        (2, LedgerLineKind.EFFECT, "a"),
    ]
    assert all(
        entry.mono_ns >= before and entry.pid == os.getpid() for entry in entries
    )

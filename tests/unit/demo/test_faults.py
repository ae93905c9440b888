"""What the demo says about a kill, and in which colour."""

import asyncio
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from durio.cli.demo import DemoOutput, show_verdict
from durio.demo.faults import FaultInjector, Kill
from durio.demo.record import Ledger, LedgerLineKind
from durio.demo.verdict import DemoVerdict
from durio.host.clock import HostClock


@dataclass
class Target:
    """A demo with two open jobs."""

    ledger_folder: Path
    clock: HostClock = field(default_factory=HostClock)
    lines: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.ledger_folder)
        self.tasks = {"a": "send_mail", "b": "send_mail"}

    def print_line(self, line: str, /, style: str = "") -> None:
        self.lines.append((line.partition(", ")[0], style))


class Victim:
    pid = 7

    def kill(self) -> None: ...


def test_kill_is_red_and_recovery_green(tmp_path: Path) -> None:
    target = Target(tmp_path)
    injector: Any = FaultInjector(target)
    kill = injector._kill("worker", Victim(), {"a", "b"})
    for job in ("a", "b"):
        target.ledger.write(LedgerLineKind.STARTED, job=job, attempt=2)
    asyncio.run(injector.wait_for_rerun(kill))
    asyncio.run(injector.wait_for_rerun(Kill({"a"}, kill.at)))
    target.ledger.close()
    assert target.lines == [
        ("kill -9 of worker 7 in the middle of: 2 send_mail", "red"),
        ("all 2 jobs run again", "green"),
        ("the job runs again", "green"),
    ]


def test_colour_of_a_line() -> None:
    output, stream = DemoOutput(quiet=False), io.StringIO()
    output._console = Console(
        file=stream, force_terminal=True, color_system="standard", no_color=False
    )
    output.print_line("kill [red]", "red")
    assert stream.getvalue().startswith("\x1b[31m")
    assert "kill [red]" in stream.getvalue()


def test_one_of_each_is_told_in_the_singular(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdict = DemoVerdict(
        jobs=9, rerun=1, cancelled=1, repeated=1, refused=1, poisoned=1, kills=1
    )
    show_verdict(verdict, [])
    shown = capsys.readouterr().out
    for line in (
        "1 job was cancelled on request",
        "1 customer clicked twice",
        "1 parcel was refused",
        "1 job was dead-lettered",
        "1 process was killed: 1 job ran again",
    ):
        assert line in shown
    assert shown.endswith("9 jobs: 0 done, 0 dead, 0 lost, 0 doubled\n")

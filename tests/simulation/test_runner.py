"""The runner and its report: order, processes that die, true verdicts, the command."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.checkout import ROOT
from tests.progress import Bar, Lines
from tests.simulation import runner
from tests.simulation.__main__ import main
from tests.simulation.account import Account
from tests.simulation.checks import Violation
from tests.simulation.runner import Runner, Tell, WorldProcess, WorldSelection, run
from tests.simulation.shrink import FOLDER
from tests.simulation.summary import BROKEN, HELD, UNKNOWN, Summary, failure


def world(seed: int = 1, **fields) -> Account:
    some = {"digest": "d", "attempts": 5, "faults": {"kill": 1}, "exercised": ["I1"]}
    return Account(seed=seed, **{**some, **fields})


def summary_of(*accounts: Account) -> Summary:
    summary = Summary()
    for account in accounts:
        summary.add(account)
    return summary


def test_worlds_are_told_in_order():
    told: list[int] = []
    taking = Runner(WorldSelection(), lambda account: told.append(account.seed))
    taking.dealt.extend([9, 5, 6, 7])
    for seed in (6, 5, 9, 7):
        taking.take(world(seed))
    assert told == [9, 5, 6, 7]


def test_what_nobody_tried_has_not_held():
    summary = summary_of(world(1), world(2, exercised=["I1", "I4"]))
    verdicts = summary.verdicts()
    assert (verdicts["I1"], verdicts["I4"], verdicts["I3"]) == (HELD, HELD, UNKNOWN)
    assert summary.exercised["I4"] == 1
    assert summary.exit_code == 0


def test_checks_of_both_files_have_a_verdict():
    assert {"I1", "bound", "paused", "hooks", "world"} <= summary_of().verdicts().keys()


def test_recoveries_of_all_worlds_are_told_together():
    summary = summary_of(world(1, recoveries=[1.0, 3.0]), world(2, recoveries=[2.0]))
    told = summary.as_json(0.0)["recovery"]
    assert told == {"restarts": 3, "p50_seconds": 2.0, "p99_seconds": 3.0}
    assert "recovery        2.0 s (p50), 3.0 s (p99)" in "\n".join(summary.lines(0.0))
    assert "recovery" not in "\n".join(summary_of(world(1)).lines(0.0))


@pytest.mark.parametrize(
    "account", [world(attempts=0), world(faults={}), world(exercised=[], attempts=0)]
)
def test_world_in_which_nothing_happens_shows_nothing(account):
    assert summary_of(account).verdict == UNKNOWN
    assert summary_of(account).exit_code == 2
    nothing = summary_of()
    assert nothing.exit_code == 2
    assert "seeds none" in "\n".join(nothing.lines(0.0))


def test_broken_promise_and_second_history_fail():
    broken = world(3, violations=[Violation("I4", 17, "two ends")])
    summary = summary_of(world(1), broken)
    assert summary.verdicts()["I4"] == BROKEN
    assert (summary.verdict, summary.exit_code) == (BROKEN, 1)
    assert summary.named_failing() == "3 (I4)"
    two = summary_of(world(4, twin_digest="e"))
    assert (two.different, two.exit_code) == ([4], 1)
    assert summary_of(world(4, twin_digest="d")).exit_code == 0


def test_failure_says_all_that_is_needed():
    account = world(
        4711,
        knobs={"lease_seconds": 6.0},
        violations=[Violation("I4", 17, "two ends")],
        stories=["story of I4: two ends (job 17)\n     1.000 ! worker-1 fault"],
    )
    told = failure(account, "abc123")
    for part in ("4711", "abc123", "lease_seconds=6.0", "I4: two ends (job 17)"):
        assert part in told
    assert told.endswith("replay  make sim SEED=4711")


class Pretender:
    """Starts another program in place of a world process."""

    def __init__(self, program: str) -> None:
        self.program = program

    async def __call__(self, *_command: str, **options):
        options["stdin"] = asyncio.subprocess.PIPE
        return await self.real(sys.executable, "-c", self.program, **options)

    real = staticmethod(asyncio.create_subprocess_exec)


def accounts_of(plan: WorldSelection) -> list[Account]:
    told: list[Account] = []
    run(plan, told.append)
    return told


def test_process_that_dies_over_a_world_is_told(monkeypatch: pytest.MonkeyPatch):
    program = Pretender("input(); raise SystemExit(7)")
    monkeypatch.setattr(asyncio, "create_subprocess_exec", program)
    told = accounts_of(WorldSelection(first=1, seeds=3, jobs=2, twin_every=100))
    assert [account.seed for account in told] == [1, 2, 3]
    for account in told:
        assert "its process ended: 7" in str(account.violations[0])


def test_world_that_never_ends_is_told(monkeypatch: pytest.MonkeyPatch):
    program = Pretender("import signal; signal.pause()")
    monkeypatch.setattr(asyncio, "create_subprocess_exec", program)
    monkeypatch.setattr(runner, "WORLD_SECONDS_MAX", 0.2)
    (account,) = accounts_of(WorldSelection(first=1, seeds=1))
    assert "twice not over after 0 s" in str(account.violations[0])


def test_world_that_is_late_is_played_once_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """A stopped machine or runner breaks no invariant."""
    mark = tmp_path / "tried"
    program = Pretender(
        "import json, pathlib, signal, sys\n"
        "for line in sys.stdin:\n"
        f"    mark = pathlib.Path({str(mark)!r})\n"
        "    if not mark.exists():\n"
        "        mark.touch()\n"
        "        signal.pause()\n"
        "    print(json.dumps({'seed': int(line), 'digest': 'd'}), flush=True)"
    )
    monkeypatch.setattr(asyncio, "create_subprocess_exec", program)
    monkeypatch.setattr(runner, "WORLD_SECONDS_MAX", 2.0)
    (account,) = accounts_of(WorldSelection(first=7, seeds=1, twin_every=100))
    assert mark.exists()
    assert (account.digest, account.violations) == ("d", [])
    summary = summary_of(account)
    assert summary.as_json(0.0)["late"] == [7]
    assert "only at the second try: [7]" in "\n".join(summary.lines(0.0))


def test_second_history_is_noticed(monkeypatch: pytest.MonkeyPatch):
    program = Pretender(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    digest = os.environ['PYTHONHASHSEED']\n"
        "    print(json.dumps({'seed': int(line), 'digest': digest}), flush=True)"
    )
    monkeypatch.setattr(asyncio, "create_subprocess_exec", program)
    told = accounts_of(WorldSelection(first=40, seeds=5, jobs=2, twin_every=2))
    assert [a.twin_digest is not None for a in told] == [True, False, True, False, True]
    assert all(a.is_different == (a.twin_digest is not None) for a in told)
    box = accounts_of(WorldSelection(first=1, seconds=0.2))
    assert [account.seed for account in box] == list(range(1, len(box) + 1))


def test_code_that_was_edited_meanwhile_is_no_second_history(
    monkeypatch: pytest.MonkeyPatch,
):
    program = Pretender(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    own = os.environ['PYTHONHASHSEED']\n"
        "    told = {'seed': int(line), 'digest': own, 'program': own}\n"
        "    print(json.dumps(told), flush=True)"
    )
    monkeypatch.setattr(asyncio, "create_subprocess_exec", program)
    (account,) = accounts_of(WorldSelection(seeds=1, twin_every=1))
    assert not account.is_different
    told = "\n".join(summary_of(account, world(program="other")).lines(0.0))
    assert "the code was edited meanwhile" in told


def test_processes_are_renewed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "WORLDS_PER_PROCESS", 2)
    program = Pretender(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    told = {'seed': int(line), 'digest': str(os.getpid())}\n"
        "    print(json.dumps(told), flush=True)"
    )
    monkeypatch.setattr(asyncio, "create_subprocess_exec", program)

    async def play() -> list[str]:
        seat = WorldProcess(1)
        pids = [(await seat.play(seed)).digest for seed in range(5)]
        await seat.end()
        return pids

    pids = asyncio.run(play())
    assert len(set(pids)) == 3
    assert pids[0] == pids[1] != pids[2]


def test_replay_of_one_seed_tells_its_story(tmp_path: Path):
    report = tmp_path / "report.json"
    ran = CliRunner().invoke(main, ["--seed", "1", "--json", str(report)])
    assert ran.exit_code == 0, ran.output
    for part in ("enq.invoke", "claim_no=1", " ! ", "digest  ", "verdict         held"):
        assert part in ran.output
    told = json.loads(report.read_bytes())
    assert (told["verdict"], told["seeds"], told["failing"]) == ("held", [1, 1], [])
    assert told["invariants"]["I1"]["verdict"] == "held"
    of_one = CliRunner().invoke(main, ["--seed", "1", "--job", "3"])
    assert "job 3:" in of_one.output
    assert "job 4 " not in of_one.output


def test_world_that_was_kept_is_replayed_with_its_story():
    path = FOLDER / "seed_1_I4.json"
    ran = CliRunner().invoke(main, ["--world", str(path), "--job", "0"])
    assert ran.exit_code == 0, ran.output
    for part in ("once seen at", "job 0: plain", "fault", "verdict         held"):
        assert part in ran.output


def test_ctrl_c_keeps_what_was_played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def one_and_stop(_plan: WorldSelection, tell: Tell) -> None:
        tell(world(1, violations=[Violation("I4", 17, "two ends")]))
        raise KeyboardInterrupt

    monkeypatch.setattr("tests.simulation.__main__.run", one_and_stop)
    report = tmp_path / "report.json"
    args = ["--seeds", "50", "--shrink", "--json", str(report)]
    ran = CliRunner().invoke(main, args)
    assert ran.exit_code == 130, ran.output
    assert "broken so far: cut short, worlds played: 1 of 50" in ran.output
    assert "is not broken any more" not in ran.output  # no world was played again
    told = json.loads(report.read_bytes())
    assert (told["cut_short"], told["worlds"], told["verdict"]) == (True, 1, "broken")


REFUSED = [
    ("--seed 1 --seeds 5", "replay one world"),
    ("--seed 1 --first 7", "replay one world"),
    ("--world x --seconds 7", "replay one world"),
    ("--seed 1 --world x", "not both"),
    ("--world x --shrink", "leave --shrink out"),
    ("--world /nowhere/x.json", "holds no world"),
    ("--world pyproject.toml", "holds no world"),
    ("--job 1", "--job needs --seed"),
    ("--seed 1 --job 100000", "has no job 100000"),
    ("--seeds 0", "0 is not in the range"),
    ("--seconds nan", "nan is not a number above 0"),
    ("--shrink-seconds -5", "-5 is not a number above 0"),
    ("--json /nowhere/x.json", "there is no folder /nowhere"),
    ("--json tests", "tests is a folder"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_command_says_what_it_wants(
    arguments: str, said: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(ROOT)
    ran = CliRunner().invoke(main, arguments.split())
    assert said in " ".join(ran.output.split())
    assert ran.exit_code == 2


def test_help_has_examples_and_exit_codes():
    ran = CliRunner().invoke(main, ["--help"])
    assert ran.exit_code == 0
    for part in ("Examples:", "--world", "Exit codes:", "  130  stopped by Ctrl-C"):
        assert part in ran.output


def test_progress_is_a_line_per_tenth_where_nobody_watches(
    capsys: pytest.CaptureFixture[str],
):
    with Lines(40) as lines:
        for done in range(1, 41):
            lines.show(done, f"{done} worlds")
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 10
    assert told[-1] == "100 %  40 worlds"
    with Bar(2) as bar:
        bar.show(1, "1 world [x]")
        bar.say("seed 1 [failed]")
    assert "seed 1 [failed]" in capsys.readouterr().err

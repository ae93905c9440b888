"""The judge is judged: an honest ledger holds, and every planted lie is found."""

from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.chaos.judge import BROKEN, HELD, UNKNOWN, Line, Row, Wanted, judge

SECOND = 10**9
FEW = Wanted(acknowledged_min=2, faults_min=1)
DONE = Row("a", 1, "chaos.work", "done", result={"n": 1, "attempt": 1})
RERUN = Row("b", 2, "chaos.work", "done", result={"n": 2, "attempt": 2})


def line(second: float, ev: str, job: str = "", **facts: Any) -> Line:
    told = {"ev": ev, "job": job, "attempt": 1, "pid": 10, "parent": 1}
    return {**told, **facts, "mono_ns": int(second * SECOND)}


def story() -> list[Line]:
    """Two jobs; the worker of the second one is killed, and it runs again."""
    return [
        line(1, "enq.invoke", n=1),
        line(1.1, "enq.ok", "a", n=1),
        line(1.2, "start", "a", n=1),
        line(1.3, "effect", "a", n=1),
        line(1.4, "accepted", "a"),
        line(2, "enq.invoke", n=2),
        line(2.1, "enq.ok", "b", n=2),
        line(2.2, "start", "b", n=2, pid=20),
        line(2.3, "nemesis.begin", fault="kill", pids=[20], of=1, lasting=True),
        line(4.3, "start", "b", n=2, attempt=2),
        line(4.4, "effect", "b", n=2, attempt=2),
        line(4.5, "accepted", "b", attempt=2),
    ]


def without(lines: list[Line], ev: str, job: str = "") -> list[Line]:
    left = [x for x in lines if (x["ev"], x["job"]) != (ev, job)]
    assert len(left) < len(lines)
    return left


def test_an_honest_story_holds() -> None:
    verdict = judge(story(), [DONE, RERUN], FEW)
    assert verdict.code == HELD, verdict.problems
    assert (verdict.attempted, verdict.acknowledged, verdict.ok) == (2, 2, 2)
    assert (verdict.lost, verdict.unexpected, verdict.duplicated) == (0, 0, 0)
    assert (verdict.explained, verdict.unexplained) == (1, 0)
    assert verdict.recovery == [2.0]


LIES: dict[str, tuple[list[Line], list[Row], str]] = {
    "effect line removed": (without(story(), "effect", "a"), [DONE, RERUN], "lost"),
    "row removed": (story(), [RERUN], "lost"),
    "row not final": (story(), [replace(DONE, state="ready"), RERUN], "lost"),
    "invoke removed": (without(story(), "enq.invoke"), [DONE, RERUN], "unexpected"),
    "stored though refused": (
        [*without(story(), "enq.ok", "a"), line(1.1, "enq.fail", n=1)],
        [DONE, RERUN],
        "unexpected",
    ),
    "dead for no reason": (
        story(),
        [replace(DONE, state="dead", reason="worker_lost", result=None), RERUN],
        "unexpected",
    ),
    "poison that is done": (
        story(),
        [replace(DONE, task="chaos.poison"), RERUN],
        "unexpected",
    ),
    "another's result": (
        story(),
        [replace(DONE, result={"n": 2, "attempt": 1}), RERUN],
        "unexpected",
    ),
    "a lost attempt's result": (
        story(),
        [DONE, replace(RERUN, result={"n": 2, "attempt": 1})],
        "unexpected",
    ),
    "end that nobody saw": (
        without(story(), "accepted", "a"),
        [DONE, RERUN],
        "unexpected",
    ),
    "stored twice": (story(), [DONE, RERUN, replace(DONE, id="c")], "duplicated"),
    "accepted twice": (
        [*story(), line(5, "accepted", "a")],
        [DONE, RERUN],
        "duplicated",
    ),
    "effect twice": (
        [*story(), line(1.35, "effect", "a", n=1)],
        [DONE, RERUN],
        "duplicated",
    ),
    "begun after its end": (
        [*story(), line(6, "start", "b", n=2, attempt=3, pid=20)],
        [DONE, RERUN],
        "duplicated",
    ),
    "kill not on record": (
        without(story(), "nemesis.begin"),
        [DONE, RERUN],
        "unexplained",
    ),
    "another process was killed": (
        [
            *without(story(), "nemesis.begin"),
            line(2.3, "nemesis.begin", fault="kill", pids=[30], of=1, lasting=True),
        ],
        [DONE, RERUN],
        "unexplained",
    ),
    "put on record too late": (
        [
            *without(story(), "nemesis.begin"),
            line(4.4, "nemesis.begin", fault="kill", pids=[20], of=1, lasting=True),
        ],
        [DONE, RERUN],
        "unexplained",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_planted_lie_is_found(lie: str) -> None:
    lines, rows, word = LIES[lie]
    verdict = judge(lines, rows, FEW)
    assert verdict.code == BROKEN
    assert getattr(verdict, word) > 0, verdict


def test_a_disturbance_that_is_over_explains_nothing_later() -> None:
    lines = [
        *without(story(), "nemesis.begin"),
        line(0.1, "nemesis.begin", fault="pause", pids=[20], of=1, lasting=False),
        line(0.2, "nemesis.end", of=1),
    ]
    assert judge(lines, [DONE, RERUN], FEW).code == HELD, (
        "its victim may be slow to see"
    )
    late = [{**x, "mono_ns": x["mono_ns"] + 60 * SECOND} for x in lines[:-2]]
    assert judge([*late, *lines[-2:]], [DONE, RERUN], FEW).unexplained == 1


def test_a_retry_that_the_task_asked_for_is_no_rerun() -> None:
    lines = without(story(), "nemesis.begin")
    lines.append(line(2.3, "raised", "b", n=2, pid=20))
    verdict = judge(lines, [DONE, RERUN], replace(FEW, faults_min=0))
    assert (verdict.code, verdict.explained, verdict.unexplained) == (HELD, 0, 0)


def unlucky(*, neighbour: bool, after: float = 5.5) -> list[Line]:
    """A job whose three workers are killed one after the other, the last one alone or not."""
    lines = without(without(story(), "effect", "a"), "accepted", "a")
    for number, pid in enumerate((31, 32, 33), 1):
        lines += [
            line(5 + number, "start", "a", n=1, pid=pid, attempt=1 + number),
            line(
                after + number, "nemesis.begin", fault="kill", pids=[pid], lasting=True
            ),
        ]
    lines.append(line(1.3, "nemesis.begin", fault="kill", pids=[10], lasting=True))
    lines.append(line(9, "dead", "a", pid=10))
    if neighbour:
        lines += [line(8.2, "start", "c", n=3, pid=33), line(0, "enq.invoke", n=3)]
    return lines


def test_a_job_that_lost_three_workers_is_convicted_only_if_it_was_alone() -> None:
    convicted = Row("a", 1, "chaos.work", "dead", "worker_lost")
    alone = judge(unlucky(neighbour=False), [convicted, RERUN], FEW)
    assert (alone.code, alone.ok) == (HELD, 2), alone.problems
    told_before = unlucky(neighbour=False, after=4.9)
    assert judge(told_before, [convicted, RERUN], FEW).code == HELD
    never_begun = [
        x for x in unlucky(neighbour=False) if x["ev"] != "start" or x["pid"] != 31
    ]
    assert judge(never_begun, [convicted, RERUN], FEW).code == HELD
    too_few = [x for x in never_begun if x["ev"] != "start" or x["pid"] != 33]
    young = [{**x, "attempt": 2} if x["pid"] == 32 else x for x in too_few]
    assert judge(young, [convicted, RERUN], FEW).unexpected == 1
    third = [{**x, "attempt": 3} if x["ev"] == "dead" else x for x in young]
    assert judge(third, [convicted, RERUN], FEW).code == HELD
    beside = judge(unlucky(neighbour=True), [convicted, RERUN], FEW)
    assert (beside.code, beside.unexpected) == (BROKEN, 1)


def test_an_unknown_enqueue_may_be_there_once_or_not() -> None:
    there = without(story(), "enq.ok", "a")
    assert judge(there, [DONE, RERUN], replace(FEW, acknowledged_min=1)).recovered == 1
    absent = [x for x in there if x["job"] != "a"]
    verdict = judge(absent, [RERUN], replace(FEW, acknowledged_min=1))
    assert (verdict.code, verdict.recovered) == (HELD, 0)
    twice = judge(there, [DONE, RERUN, replace(DONE, id="c")], FEW)
    assert (twice.code, twice.duplicated, twice.recovered) == (BROKEN, 1, 0)


def test_a_pruned_job_is_known_by_its_ledger_alone() -> None:
    prunes = replace(FEW, prunes=True)
    assert judge(story(), [], prunes).code == HELD
    assert judge(without(story(), "accepted", "a"), [], prunes).lost == 1
    assert judge(without(story(), "effect", "a"), [], prunes).lost == 1


def test_too_little_is_unknown_and_too_late_is_broken() -> None:
    rows = [DONE, RERUN]
    assert judge(story(), rows, replace(FEW, acknowledged_min=3)).code == UNKNOWN
    assert judge(story(), rows, replace(FEW, faults_min=2)).code == UNKNOWN
    assert judge(story(), rows, replace(FEW, recovery_seconds=1)).code == HELD
    assert judge(story(), rows, replace(FEW, recovery_seconds=0.5)).code == BROKEN

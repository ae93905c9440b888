"""Fingerprints of errors, and what is counted of a group."""

import pytest

from durio.model.error_groups import (
    ELSEWHERE,
    FRAMES_MAX,
    GROUPS_MAX,
    NAMES_MAX,
    OTHERS,
    ErrorGroup,
    ErrorOccurrence,
    Mute,
    errors_kind,
    fingerprint_of,
    group_of_job,
    group_put,
    load_group,
    new_group,
    user_frames,
)
from durio.model.failure import encode_failure, failure_of
from tests.unit.model.test_plan_storage import job as stored

TRACE = """Traceback (most recent call last):
  File "/srv/a/shop/lib/orders.py", line 3, in load
    raise KeyError(1)
KeyError: 1

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "{folder}/shop/mail.py", line {line}, in send
    return render(order)
  File "{folder}/shop/render.py", line 7, in render
    return get(order)
  File "{folder}/.venv/lib/python3.12/site-packages/httpx/client.py", line 9, in get
    raise Timeout
Timeout: 12 s
... and 3 frames of durio
"""


def occurrence(number: int = 0, **fields: object) -> ErrorOccurrence:
    one = ErrorOccurrence(
        "f", ("a in b",), "E", f"no {number}", 10.0 + number, "shop.send", "1",
        "host", f"job-{number}", is_dead=False,
    )  # fmt: skip
    return one._replace(**fields)  # type: ignore[arg-type]


def test_frames_are_those_of_the_user_in_the_last_exception() -> None:
    trace = TRACE.format(folder="/srv/a", line=3)
    assert user_frames(trace) == ("shop/mail.py in send", "shop/render.py in render")
    assert user_frames("") == ()


def test_a_recursion_is_one_frame_and_a_deep_stack_is_cut() -> None:
    frame = '  File "/a/b/c.py", line 1, in f{}\n'
    assert user_frames(frame.format(1) * 50) == ("b/c.py in f1",)
    deep = "".join(frame.format(n) for n in range(60))
    assert user_frames(deep)[-1] == "b/c.py in f59"
    assert len(user_frames(deep)) == FRAMES_MAX


def test_machines_and_lines_make_no_difference() -> None:
    first = fingerprint_of(
        "Timeout", "12 s", TRACE.format(folder="/srv/a", line=3), "t"
    )
    second = fingerprint_of("Timeout", "9 s", TRACE.format(folder="/opt", line=88), "u")
    assert first == second
    other = fingerprint_of("Other", "12 s", TRACE.format(folder="/srv/a", line=3), "t")
    assert other[0] != first[0]


def test_without_frames_the_task_and_the_message_count() -> None:
    first = fingerprint_of("HardTimeLimit", "a ran 3.2 s at 0x7f", "", "a")
    assert first == fingerprint_of("HardTimeLimit", "a ran 31.9 s at 0x8e", "", "a")
    assert first != fingerprint_of("HardTimeLimit", "a ran 3.2 s at 0x7f", "", "b")


def test_the_group_of_a_job_is_that_of_its_last_error() -> None:
    errors = [encode_failure(failure_of(error)) for error in (KeyError(), OSError())]
    job = stored(b"[]")._replace(errors=b"[" + b",".join(errors) + b"]")
    expected, _ = fingerprint_of("OSError", "", "OSError\n", job.task)
    assert group_of_job(job) == expected
    assert group_of_job(stored(b"[]")) is None


def test_occurrences_are_counted() -> None:
    first = new_group([occurrence(1), occurrence(3, is_dead=True)], "f")
    assert (first.failed, first.dead, first.message) == (2, 1, "no 3")
    assert (first.first_at, first.last_at, first.last_job) == (11.0, 13.0, "job-3")
    later = first.with_occurrences([occurrence(2, version="2", host="other")])
    assert (later.failed, later.message, later.last_job) == (3, "no 3", "job-3")
    assert later.versions == {"1": 2, "2": 1}
    assert later.hosts == {"host": 2, "other": 1}
    assert later.tasks == {"shop.send": 3}


def test_names_are_bounded() -> None:
    many = [occurrence(task=f"t{n}") for n in range(NAMES_MAX + 5)]
    group = new_group(many, "f").with_occurrences([occurrence(task="t0")])
    assert len(group.tasks) == NAMES_MAX + 1
    assert (group.tasks[ELSEWHERE], group.tasks["t0"]) == (5, 2)


def test_further_groups_are_one() -> None:
    group = new_group([occurrence()], OTHERS)
    assert str(GROUPS_MAX) in group.type
    assert group.frames == ()


@pytest.mark.parametrize("mute", [None, Mute("ann", 3.0, "known")])
def test_a_group_is_a_record(mute: Mute | None) -> None:
    group = ErrorGroup(
        type="E", message="m", frames=("a in b",), first_at=1.0, last_at=2.0,
        last_job="j", mute=mute,
    )  # fmt: skip
    put = group_put("shop", "f00d", group, 7)
    assert (put.kind, put.name, put.if_version) == (errors_kind("shop"), "f00d", 7)
    assert put.body is not None
    assert load_group(put.body) == group

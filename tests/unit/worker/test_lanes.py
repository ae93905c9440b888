"""Which lanes to ask, how many from each, who may start."""

from collections import Counter

import pytest

from durio.model.job import Claim
from durio.model.names import queue_of
from durio.model.queues import parse_serving
from durio.ports.exchange import Exchanged, Lane
from durio.worker.lanes import LANES_MAX, ClaimBuffer, Lanes, Quotas, quotas_for


def make(*queues: str, concurrency: int = 10, **options: object) -> Lanes:
    told = parse_serving(list(queues) or None, **options)  # type: ignore[arg-type]
    quotas = quotas_for(told, concurrency)
    if quotas is not None:
        quotas.want(concurrency, 0, 0)
    return Lanes("app", told, quotas, lambda: 0.5)


def claim(number: int, queue: str) -> Claim:
    return Claim(
        id=number.to_bytes(16),
        claim_no=1,
        lane=f"app:{queue}",
        rank=4,
        task="app.x",
        payload=b"[]",
        retried=0,
        losses=0,
        lost=0,
        snoozed=0,
        opts=None,
        parked_at=None,
    )


def answer(*queues: str, more: bool = False) -> Exchanged:
    claims = [claim(number, queue) for number, queue in enumerate(queues)]
    return Exchanged(claims, [], [], more=more, next_due_seconds=None)


def test_one_queue_is_asked_for_all() -> None:
    lanes = make("mail")
    assert lanes.ask(12) == [Lane("app:mail", 12)]
    assert lanes.ask(0) == []
    assert lanes.apply_answer(answer("mail", more=True), 12)


def test_queues_of_one_weight_take_turns() -> None:
    lanes = make("a", "b", "c")
    firsts = Counter(lanes.ask(5)[0].name for _ in range(9))
    assert firsts == {"app:a": 3, "app:b": 3, "app:c": 3}
    assert {lane.limit for lane in lanes.ask(5)} == {5}


def test_a_worker_of_all_queues_learns_them() -> None:
    lanes = make()
    assert lanes.ask(5) == []
    lanes.wake(["app:mail", "other:mail", "apple:mail"])
    assert lanes.names == ["app:mail"]
    lanes.begin_learning()
    lanes.wake(["app:late"])
    lanes.learn(["app:old", "other:x"])
    assert lanes.names == ["app:late", "app:old"], "mail has no jobs any more"


def test_a_worker_of_named_queues_hears_nothing_new() -> None:
    lanes = make("mail")
    lanes.wake(["app:other"])
    assert lanes.names == ["app:mail"]


def test_globs_and_names_together() -> None:
    lanes = make("default", "mail*")
    lanes.learn(["app:mail-a", "app:other"])
    assert lanes.names == ["app:default", "app:mail-a"]
    lanes.learn([])
    assert lanes.names == ["app:default"]


def test_more_queues_than_one_call_can_ask() -> None:
    names = [f"q{number:03}" for number in range(150)]
    lanes = make(*names)
    seen = {lane.name for _ in range(150) for lane in lanes.ask(1)}
    assert len(lanes.ask(1)) == LANES_MAX
    assert len(seen) == 150


def test_empty_queues_are_passed_by_64_at_once() -> None:
    lanes = make(*[f"q{number:03}" for number in range(150)])
    first, second, *_ = [lane.name for lane in lanes.ask(1)]
    lanes.apply_answer(answer(first.partition(":")[2]), 1)
    asked = [lane.name for lane in lanes.ask(1)]
    assert asked[0] == second, "each queue is the first in its turn"
    seen = set(asked)
    for _ in range(2):
        lanes.apply_answer(answer(), 1)
        seen |= {lane.name for lane in lanes.ask(1)}
    assert len(seen) == 150


def test_strict_looks_further_only_when_the_first_are_empty() -> None:
    names = [f"q{number:03}" for number in range(150)]
    lanes = make(*names, is_strict=True)
    assert lanes.ask(2)[0].name == "app:q000"
    assert lanes.apply_answer(answer(), 2)
    assert lanes.ask(2)[0].name == "app:q064"
    assert lanes.apply_answer(answer(), 2)
    assert lanes.ask(2)[0].name == "app:q128"
    assert not lanes.apply_answer(answer(), 2), "these were the last"
    assert lanes.ask(2)[0].name == "app:q000"
    lanes.apply_answer(answer(), 2)
    lanes.apply_answer(answer("q064", "q065", more=True), 2)
    assert lanes.ask(2)[0].name == "app:q000", "found some: begin again"


def test_weights_split_what_is_wanted() -> None:
    lanes = make("high", "low", weights=["high=9"])
    given: list[str] = []
    for _ in range(10):
        asked = [
            queue_of(lane.name) for lane in lanes.ask(10) for _ in range(lane.limit)
        ]
        assert lanes.apply_answer(answer(*asked[:10]), 10), "full queues give all of it"
        given += asked[:10]
    assert given.count("high") == pytest.approx(90, abs=2)
    lanes.ask(10)
    assert not lanes.apply_answer(answer(), 10)


def test_what_comes_in_blocks_starts_mixed() -> None:
    lanes = make("high", "low", weights=["high=3"])
    lanes.ask(8)
    claims = answer(*["high"] * 6, *["low"] * 2, "gone").claims
    mixed = [queue_of(claim.lane) for claim in lanes.mixed(claims)]
    assert "".join(name[0] for name in mixed) == "hhghhlhhl"
    plain = make("high", "low")
    assert plain.mixed(claims) is claims


def test_slots_lower_what_a_lane_is_asked_for() -> None:
    lanes = make("high=4", "low=1", concurrency=5)
    assert sorted(lanes.ask(5)) == [Lane("app:high", 4), Lane("app:low", 1)]


# --- quotas


def quotas(*queues: str, concurrency: int = 10, **options: object) -> Quotas:
    told = parse_serving(list(queues) or None, **options)  # type: ignore[arg-type]
    made = quotas_for(told, concurrency)
    assert made is not None
    made.rules = {f"app:{q}": told.rule_of(q) for q in told.names}
    return made


def test_no_quotas_for_a_plain_worker() -> None:
    assert quotas_for(parse_serving(["a", "b"], weights=["a=3"]), 10) is None


def test_running_and_waiting_count() -> None:
    mine = quotas("high=4", "low=1", concurrency=5)
    assert mine.want(5, 0, 0) == 5
    for number in range(3):
        mine.starts(claim(number, "high"))
    mine.waits(claim(9, "low"))
    assert mine.want(2, 0, 1) == 1, "one of high: low has one that will start"
    assert (mine.room("app:high"), mine.room("app:low")) == (1, 0)
    mine.ends(claim(0, "high"))
    mine.leaves(claim(9, "low"))
    assert mine.want(3, 0, 0) == 3
    mine.clear()
    assert mine.want(5, 0, 0) == 5


def test_a_part_of_what_is_held_ahead() -> None:
    mine = quotas("high=4", "low=1", concurrency=5)
    mine.want(0, 10, 0)
    assert (mine.room_to_wait("app:high"), mine.room_to_wait("app:low")) == (8, 2)


def test_the_first_that_may_start() -> None:
    mine = quotas("high=2", "low=1", concurrency=3)
    buffer = ClaimBuffer(mine)
    buffer.add([claim(1, "low"), claim(2, "low"), claim(3, "high")])
    taken: list[int] = []
    while (next_one := mine.take_next(buffer)) is not None:
        mine.starts(next_one)
        taken.append(next_one.id[-1])
    assert taken == [1, 3], "the second of low holds nobody up"
    assert len(buffer) == 1


# --- the buffer


def test_first_come_first_served() -> None:
    buffer = ClaimBuffer()
    buffer.add([claim(1, "a"), claim(2, "b")])
    buffer.add([claim(3, "a")])
    assert [one.id[-1] for one in buffer] == [1, 2, 3]
    assert buffer.popleft().id[-1] == 1


def test_strict_order_in_the_buffer() -> None:
    lanes = make("high", "low", is_strict=True)
    buffer = ClaimBuffer(sort=lanes.sort)
    buffer.add([claim(1, "low"), claim(2, "unknown"), claim(3, "low")])
    buffer.add([claim(4, "high")])
    assert [one.id[-1] for one in buffer] == [4, 1, 3, 2]


@pytest.mark.parametrize("told", [("a=1", "b"), ()])
def test_taken_out_by_lane(told: tuple[str, ...]) -> None:
    mine = quotas(*told) if told else None
    buffer = ClaimBuffer(mine)
    buffer.add([claim(1, "a"), claim(2, "b"), claim(3, "a")])
    assert [one.id[-1] for one in buffer.take_all({"app:a"})] == [1, 3]
    assert [one.id[-1] for one in buffer.take_all()] == [2]
    assert buffer.take_all() == []
    assert len(buffer) == 0
    if mine is not None:
        assert mine.want(10, 0, 0) == 10

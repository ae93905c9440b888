"""What may be said about queues, and what a worker makes of it."""

from typing import Any

import pytest

from durio.errors import InvalidName, InvalidOption
from durio.model.queues import (
    TIERS,
    Queue,
    QueueArgument,
    QueueRule,
    check_pattern,
    is_glob,
    matches,
    parse_serving,
)

DECLARED = {queue.name: queue for queue in TIERS}


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "mail*"},
        {"name": "mail=3"},
        {"name": None},
        {"weight": 0},
        {"weight": -1},
        {"weight": 1001},
        {"weight": 1.5},
        {"weight": True},
        {"weight": None},
        {"weight": "6"},
        {"slots": 0},
        {"slots": 10_001},
        {"prefetch": -1},
        {"prefetch": "many"},
        {"maxsize": 0},
        {"retention": -1},
        {"full_wait": -1},
    ],
)
def test_bad_declarations_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises((InvalidOption, InvalidName)) as caught:
        Queue(**{"name": "mail", **options})
    assert caught.value.cure


def test_good_declarations() -> None:
    Queue("mail", retention="48h", full_wait="5s", weight=1000)
    Queue("mail", slots=None, prefetch=None, maxsize=None)


def test_a_later_declaration_says_more() -> None:
    first = Queue("mail", weight=3, slots=2)
    second = Queue("mail", slots=None, prefetch=1)
    assert first.changed_by(second) == Queue("mail", weight=3, slots=None, prefetch=1)


@pytest.mark.parametrize(
    ("pattern", "queue", "fits"),
    [
        ("mail", "mail", True),
        ("mail", "mail2", False),
        ("mail*", "mail", True),
        ("mail*", "mail-a", True),
        ("mail*", "email", False),
        ("mail-?", "mail-a", True),
        ("mail-?", "mail-ab", False),
        ("mail-[ab]", "mail-b", True),
        ("mail-[!ab]", "mail-b", False),
        ("*", "anything", True),
        ("Mail*", "mail-a", False),
    ],
)
def test_globs(pattern: str, queue: str, *, fits: bool) -> None:
    assert check_pattern(pattern) == pattern
    assert matches(pattern, queue) is fits
    assert is_glob(pattern) is (pattern != "mail")


@pytest.mark.parametrize("pattern", ["a[", "a]", "a[]", "a b*", "a[b", "ä*", "*" * 129])
def test_globs_that_match_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidName, match="can match no queue"):
        check_pattern(pattern)


def test_what_a_worker_is_told() -> None:
    told = parse_serving(["high=4", "mail*=2", "low"], weights=["high=6"])
    assert told.queues == (
        QueueArgument("high", 4),
        QueueArgument("mail*", 2),
        QueueArgument("low"),
    )
    assert told.patterns == ("high", "mail*", "low")
    assert told.names == ["high", "low"]
    assert told.is_open
    assert [told.serves(queue) for queue in ("high", "mail-a", "bulk")] == [1, 1, 0]
    assert told.as_arguments == ["high=4", "mail*=2", "low"]
    every = parse_serving()
    assert every.patterns is None
    assert every.is_open
    assert every.serves("bulk")
    assert every.names == every.as_arguments == []
    assert not parse_serving(["a", "b"]).is_open


def test_no_queues_are_all_queues() -> None:
    assert parse_serving([]) == parse_serving(None)


def test_the_nearest_word_counts() -> None:
    """By name, by the first glob, as declared, the default."""
    told = parse_serving(
        ["high=4", "h*=2", "low", "*"],
        weights=["h*=9", "high=7"],
        prefetches=["low=3"],
        declared=DECLARED,
    )
    assert told.rule_of("high") == QueueRule(7, 4, 2)
    assert told.rule_of("hot") == QueueRule(9, 2, None)
    assert told.rule_of("low") == QueueRule(2, 2, 3)
    assert told.rule_of("new") == QueueRule()
    declared = {"high": Queue("high", slots=None)}
    assert parse_serving(["*=5"], declared=declared).rule_of("high") == QueueRule(
        1, 5, None
    )


def test_places_of_queues() -> None:
    """As told, then as declared, then by name."""
    told = parse_serving(["low", "*", "high"], declared=DECLARED, is_strict=True)
    queues = ["zoo", "bulk", "high", "ape", "low", "critical"]
    ordered = sorted(queues, key=told.position_of)
    assert ordered == ["low", "critical", "bulk", "ape", "zoo", "high"]
    by_code = parse_serving(declared=DECLARED)
    assert sorted(DECLARED, key=by_code.position_of) == list(DECLARED)


@pytest.mark.parametrize(
    ("queues", "given", "total"),
    [
        (["high=4", "default=2", "low=1"], None, 7),
        (["high=4", "default=2", "low=1"], 5, 5),
        (["high=4", "other"], None, 10),
        (["mail*=4"], None, 10),
        (["critical", "high", "default", "low", "bulk"], None, 20),
        (None, None, 10),
        (None, 3, 3),
    ],
)
def test_slots_of_the_worker(
    queues: list[str] | None, given: int | None, total: int
) -> None:
    assert parse_serving(queues, declared=DECLARED).concurrency(given, 10) == total


@pytest.mark.parametrize(
    ("queues", "given"), [(["high=4"], 3), (["a=11", "b"], None), (["a*=11"], None)]
)
def test_more_slots_than_the_worker_has(queues: list[str], given: int | None) -> None:
    with pytest.raises(InvalidOption, match="cannot have") as caught:
        parse_serving(queues).concurrency(given, 10)
    assert "-c" in caught.value.cure


def test_quotas_are_for_those_who_have_them() -> None:
    assert not parse_serving(["a", "b"], weights=["a=2"]).has_quotas
    assert parse_serving(["a=1", "b"]).has_quotas
    assert not parse_serving(["a=1", "b"]).has_prefetch
    assert parse_serving(["a", "b"], prefetches=["a=1"]).has_quotas
    assert parse_serving(declared=DECLARED).has_prefetch
    assert not parse_serving(["other"], declared=DECLARED).has_quotas
    assert parse_serving(["a=2", "b=3"]).is_reserved(5)
    assert not parse_serving(["a=2", "b=3"]).is_reserved(4)
    assert not parse_serving(["a=2", "b"]).is_reserved(50)
    assert not parse_serving(["a*=2"]).is_reserved(50)


def test_what_people_are_shown() -> None:
    told = parse_serving(["high=4", "low"], weights=["high=6"], declared=DECLARED)
    assert told.shown() == {
        "slots": {"high": 4, "low": 2},
        "weights": {"high": 6, "low": 2},
        "prefetch": {"high": 2, "low": 8},
        "strict": False,
    }


def test_unknown_queues() -> None:
    parse_serving(["mail", "default", "high", "x*"], declared=DECLARED).check({"mail"})
    with pytest.raises(InvalidOption, match="no queue 'mial'") as caught:
        parse_serving(["mial"]).check({"mail"})
    assert "Did you mean 'mail'?" in caught.value.cure
    assert 'app.queue("mial", weight=1)' in caught.value.cure


@pytest.mark.parametrize(
    ("queues", "pattern"),
    [(None, "mail"), (None, "x*"), (["mail"], "mail"), (["m*"], "mall"), (["m*"], "*")],
)
def test_words_about_queues_that_are_served(
    queues: list[str] | None, pattern: str
) -> None:
    parse_serving(queues, weights=[f"{pattern}=2"]).check({"mail"})
    parse_serving(queues, prefetches=[f"{pattern}=2"]).check({"mail"})


@pytest.mark.parametrize(
    ("queues", "pattern"), [(None, "mial"), (["mail"], "default"), (["m*"], "bulk")]
)
def test_words_about_queues_that_are_not_served(
    queues: list[str] | None, pattern: str
) -> None:
    with pytest.raises(InvalidOption, match="does not serve"):
        parse_serving(queues, weights=[f"{pattern}=2"]).check({"mail"})


@pytest.mark.parametrize(
    ("queues", "options"),
    [
        (["a", "a=2"], {}),
        (["a=0"], {}),
        (["a=-1"], {}),
        (["a=x"], {}),
        (["a="], {}),
        (["a=1=2"], {}),
        (["a=10001"], {}),
        (None, {"weights": ["a"]}),
        (None, {"weights": ["a=1001"]}),
        (None, {"weights": ["a=1", "a=2"]}),
        (None, {"weights": ["a=1"], "is_strict": True}),
        (None, {"prefetches": ["a"]}),
        (None, {"prefetches": ["a=-1"]}),
    ],
)
def test_badly_told(queues: list[str] | None, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_serving(queues, **options)
    assert caught.value.cure


@pytest.mark.parametrize("queue", ["", "=4", "a b", None, 4, b"a"])
def test_names_that_no_queue_has(queue: Any) -> None:
    with pytest.raises(InvalidName):
        parse_serving([queue])


def test_strict_needs_an_order() -> None:
    with pytest.raises(InvalidOption, match="order"):
        parse_serving(is_strict=True).check(())
    parse_serving(["high", "low"], is_strict=True, declared=DECLARED).check(())
    parse_serving(is_strict=True, declared=DECLARED).check(())

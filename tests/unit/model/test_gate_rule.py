"""What a rule says for the arguments of one job: names, keys, costs, numbers."""

from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from durio.model.errors import InvalidOption, UsageError
from durio.model.gate import GATE_NAME_BYTES_MAX, START, GateSpec, check_gates
from durio.model.gate_keys import FAIR, gate_prefix, key_text, shortened, value_at
from durio.model.gate_rule import (
    GateChoice,
    GateRule,
    GateTemplate,
    JobPlace,
    gate_rule,
    published_rule,
    rule_of_published,
)
from durio.model.limit_records import (
    CodeLimit,
    ManualLimit,
    change_of,
    code_limit,
    gates_of_queue_limit,
    known_limits,
)
from durio.model.limits import Budget, Concurrency, Rate, parse_limits, parse_rate

PLACE = JobPlace("shop", "mail", 5)
LONG = "x" * 300


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    tenant: str


def made(*limits: Any, **options: Any) -> GateRule:
    rule = gate_rule("shop.send", limits=limits, **options)
    assert rule is not None
    return rule


def test_a_task_without_limits_has_no_rule() -> None:
    assert gate_rule("shop.send") is None
    assert published_rule(None) == {}
    assert rule_of_published("shop.send", None) is None


def test_gates_are_in_order_and_a_store_takes_them() -> None:
    rule = made(
        Rate("60/m"), Concurrency(3), Concurrency(2, key="tenant"), fair_by="tenant"
    )
    gates = rule.gates({"tenant": "acme"}, PLACE)
    assert gates == (
        GateSpec("1k:shop/send-3/acme", cap=2),
        GateSpec("3f:shop/fair:mail/5/acme", cap=16, held_until=START),
        GateSpec("4w:shop/send-2/", cap=3),
        GateSpec("5r:shop/send/", rate=1.0, burst=1.0),
    )
    check_gates(gates)
    assert rule.gates({}, PLACE) == gates[2:]


def test_another_feature_joins_with_a_gate_of_its_own() -> None:
    other = GateTemplate(limit="breaker:smtp", name="0b:shop/smtp/")
    rule = made(Concurrency(2), others=[other])
    assert [spec.name for spec in rule.gates({}, PLACE)] == [
        "0b:shop/smtp/",
        "4w:shop/send/",
    ]
    with pytest.raises(InvalidOption, match="has 5 limits: breaker:smtp, send"):
        made(*[Rate("1/s")] * 4, others=[other])


def test_numbers_that_were_set_by_hand() -> None:
    choices = {"send": GateChoice(9), "fair:mail": GateChoice(32)}
    place = PLACE._replace(choices=choices)
    rule = made(Concurrency(2), Rate("1/s"), fair_by="tenant")
    caps = [spec.cap for spec in rule.gates({"tenant": 1}, place)]
    assert caps == [32, 9, None]


def test_a_cost_from_the_arguments() -> None:
    budget = Budget("tokens", 100, per="10s", estimate="order.cost")
    rule = made(budget, Budget("money", 5, key="tenant", estimate=lambda _: 2))
    values = {"order": {"cost": 7}, "tenant": "a"}
    gates = rule.gates(values, PLACE)
    assert [(spec.name, spec.cost, spec.burst) for spec in gates] == [
        ("2r:shop/money/a", 2, 5.0),
        ("5r:shop/tokens/", 7, 100.0),
    ]
    assert rule.has_budgets
    assert rule.budgets(gates) == {
        "money": ("2r:shop/money/a", 2),
        "tokens": ("5r:shop/tokens/", 7),
    }
    two = rule.summed([gates, gates])
    assert [spec.cost for spec in two] == [4, 14]
    plain = made(Concurrency(1)).gates({}, PLACE)
    assert made(Concurrency(1)).summed([plain, plain]) == plain


def test_a_published_rule_is_the_same_for_names_of_parameters() -> None:
    rule = made(Concurrency(2, key=("a", "b.c")), fair_by="a")
    rule = rule._replace(defaults={"a": 1})
    described = published_rule(rule)["limits"]
    assert rule_of_published("shop.send", described) == rule
    bare = published_rule(rule._replace(defaults={}))["limits"]
    assert rule_of_published("shop.send", bare) == rule._replace(defaults={})
    assert rule.gates({"b": {"c": 2}}, PLACE)[0].name == '1k:shop/send/["1", "2"]'


@pytest.mark.parametrize("described", [{}, {"gates": [{"limit": 5}]}, 5])
def test_a_published_rule_that_cannot_be_read(described: Any) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        rule_of_published("shop.send", described)


# --- names and keys


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("acme", "acme"),
        ("", ""),
        (7, "7"),
        (True, "true"),
        (False, "false"),
        (Colour.RED, "red"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (None, None),
    ],
)
def test_the_text_of_a_key(value: object, text: str | None) -> None:
    assert key_text([value], "shop.send", "send") == text


def test_a_key_of_several_parts_or_none() -> None:
    assert key_text(["a", 5], "t", "l") == '["a", "5"]'
    assert key_text(["a", None], "t", "l") is None
    assert key_text([], "t", "l") is None


def test_values_at_a_path() -> None:
    order = Order("acme")
    assert value_at({"order": order}, "order.tenant") == "acme"
    assert value_at({"order": {"tenant": "b"}}, "order.tenant") == "b"
    assert value_at({"order": SimpleNamespace(a=order)}, "order.a.tenant") == "acme"
    assert value_at({"order": order}, "order.other") is None
    assert value_at({}, "order.other") is None


def test_long_and_odd_names_end_in_a_hash_and_fit() -> None:
    for text in (LONG, "ä" * 200, "a\0b", "a\nb", "\ud800"):
        name = shortened(text)
        assert len(name.encode()) <= 60
        assert name.isprintable()
        assert name != shortened(text + "!")
    assert shortened("x" * 60) == "x" * 60
    rule = gate_rule(
        f"{'s' * 63}.{'t' * 60}",
        limits=[Concurrency(1, key="a", name="n" * 128)],
        fair_by="a",
    )
    assert rule is not None
    place = JobPlace("s" * 63, "q" * 128, 9)
    for spec in rule.gates({"a": LONG}, place):
        assert len(spec.name.encode()) <= GATE_NAME_BYTES_MAX
    check_gates(rule.gates({"a": LONG}, place))


# --- records


def test_the_record_of_a_limit() -> None:
    limits = (Concurrency(2, key=("a", "b")), Rate("1/s", key=lambda _: 1))
    rule = made(*limits, Budget("tokens", 5))
    found = [code_limit(each, ("shop.send",), 9) for each in rule.templates]
    assert [(each.kind, each.key) for each in found] == [
        ("concurrency", "a, b"),
        ("rate", "a function"),
        ("budget", ""),
    ]
    assert found[0].choice == GateChoice(2)


def test_what_is_known_of_limits() -> None:
    code = {"send": CodeLimit("4w:shop/send/", "concurrency", cap=2)}
    manual = {
        "send": ManualLimit("4w:shop/send/", cap=9),
        "queue:mail": ManualLimit("4w:shop/queue:mail/", rate=1.0, burst=1.0),
        "fair:mail": ManualLimit("3f:shop/fair:mail/", cap=3),
    }
    found = known_limits(code, manual)
    assert [(each.name, each.kind, each.choice.cap) for each in found] == [
        ("fair:mail", "fairness", 3),
        ("queue:mail", "queue", None),
        ("send", "concurrency", 9),
    ]
    without = [each._replace(manual=None).choice for each in found]
    assert without == [GateChoice(16), GateChoice(), GateChoice(2)]


def test_the_change_of_a_choice() -> None:
    assert change_of("a/", GateChoice()).drop
    change = change_of("a/", GateChoice(5))
    assert (change.cap, change.rate, change.is_prefix) == (5, None, True)


def test_the_gates_of_a_limit_by_its_name() -> None:
    assert gates_of_queue_limit("shop", "queue:mail") == "4w:shop/queue:mail/"
    assert gates_of_queue_limit("shop", "fair:mail") == gate_prefix(
        FAIR, "shop", "fair:mail"
    )
    assert gates_of_queue_limit("shop", "mail") is None
    assert gates_of_queue_limit("shop", "queue:") is None


def test_rates() -> None:
    assert parse_rate("100/m") == (100.0, 100 / 60)
    assert parse_rate(" 3 / 10m ") == (3.0, 0.005)
    assert parse_rate("0.5/s") == (0.5, 0.5)
    assert parse_limits([Rate("1/s")]) == parse_limits((Rate("1/s"),))


def test_turns_by_a_function_of_the_arguments() -> None:
    rule = made(fair_by=lambda arguments: arguments["a"])
    (spec,) = rule.gates({"a": 5}, PLACE)
    assert spec.name == "3f:shop/fair:mail/5/5"
    assert rule.prefixes(PLACE) == [("fair:mail", "3f:shop/fair:mail/5/")]
    assert rule.has_functions
    with pytest.raises(UsageError, match="a function as its key"):
        rule._replace(key_functions={}).gates({"a": 5}, PLACE)

"""The table of error classes as users change it: `errors={...}`."""

from typing import Any

import pytest
import requests

from durio.errors import InvalidOption
from durio.model.error_classes import OTHER, RecognisedError
from durio.model.error_rules import NO_RULES, ErrorRules, error_rules
from durio.model.retry import Retry, Snooze

NETWORK = RecognisedError("transient", "network")


@pytest.mark.parametrize(
    ("key", "fits"),
    [
        (requests.Timeout, True),
        (Exception, True),
        (ValueError, False),
        ("requests.ReadTimeout", True),
        ("requests.exceptions.ReadTimeout", True),
        ("requests.Timeout", True),  # a base class
        ("requests.timeout", False),
        ("builtins.OSError", True),
        ("transient", True),
        ("other", False),
        (404, False),
    ],
)
def test_keys(key: Any, *, fits: bool) -> None:
    rule = error_rules({key: "dead"}).find(requests.ReadTimeout(), NETWORK)
    assert rule == ("dead" if fits else None)


def test_statuses_are_those_of_the_answer() -> None:
    rules = error_rules({404: "retry"})
    assert rules.find(Exception(), RecognisedError("permanent", "", 404)) == "retry"
    assert rules.find(Exception(), RecognisedError("permanent", "", 410)) is None


def test_named_errors_come_before_classes_and_a_task_before_its_app() -> None:
    of_app = error_rules({"transient": "dead", OSError: Snooze(9), KeyError: "dead"})
    of_task = error_rules({"other": "dead", KeyError: "retry"})
    rules = of_task.over(of_app, has_retry=False)
    assert rules.find(KeyError(), OTHER) == "retry"
    assert rules.find(ValueError(), OTHER) == "dead"
    assert rules.find(ValueError(), NETWORK) == "dead"
    assert isinstance(rules.find(OSError(), NETWORK), Snooze)


@pytest.mark.proves("M70")
def test_a_task_with_a_policy_has_its_own_numbers_for_transient_errors() -> None:
    of_app = error_rules({"transient": Retry(9), "pool_exhausted": Retry(7)})
    rules = NO_RULES.over(of_app, has_retry=True)
    assert rules.find(OSError(), NETWORK) is None
    assert rules.find(OSError(), RecognisedError("pool_exhausted")) == Retry(7)
    assert NO_RULES.over(of_app, has_retry=False).find(OSError(), NETWORK) == Retry(9)
    own = error_rules({"transient": Retry(2)}).over(of_app, has_retry=True)
    assert own.find(OSError(), NETWORK) == Retry(2)
    assert NO_RULES.without_transient() is NO_RULES


@pytest.mark.proves("M77")
@pytest.mark.parametrize(
    ("given", "loops"),
    [
        ({}, False),
        ({404: "retry", OSError: Retry(3), "other": Snooze(1)}, False),
        ({OSError: Retry(3, base=0)}, True),
        ({"other": Retry(3, delays=(0,))}, True),
        ({404: Snooze(0)}, True),
    ],
    ids=str,
)
def test_a_rule_without_a_pause_is_seen(given: Any, *, loops: bool) -> None:
    assert error_rules(given).has_no_backoff is loops


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        (None, "Give a dict"),
        ([404], "Give a dict"),
        ({404: "die"}, "'dead', 'retry', Retry"),
        ({404: 3}, "'dead', 'retry', Retry"),
        ({404: Retry}, "'dead', 'retry', Retry"),
        ({404: Retry(3, on=OSError)}, "without `on` and `never`"),
        ({404: Retry(3, never=OSError)}, "without `on` and `never`"),
        ({200: "dead"}, "HTTP status from 300"),
        ({True: "dead"}, "an exception class, its name"),
        ({int: "dead"}, "a class of exceptions"),
        ({(404, 409): "dead"}, "an exception class, its name"),
        ({"transiend": "dead"}, "Did you mean 'transient'?"),
        ({"Timeout": "dead"}, "a name with its package"),
    ],
    ids=str,
)
def test_bad_rules_are_refused(given: Any, cure: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        error_rules(given)
    assert cure in caught.value.cure
    assert caught.value.values["option"] == "errors"


def test_no_rules_say_nothing() -> None:
    assert error_rules({}) == NO_RULES == ErrorRules()
    assert NO_RULES.find(OSError(), NETWORK) is None

"""Settings: one tree, from code, dict or environment; unknown names are errors."""

import pytest

from durio.model.errors import InvalidOption
from durio.model.settings import (
    Settings,
    WorkerSettings,
    merged,
    settings_from,
    settings_from_environment,
)


@pytest.mark.proves("M58", "M111", "M106")
def test_defaults() -> None:
    settings = settings_from(None)
    assert settings == Settings()
    assert settings.worker.concurrency == 10
    assert settings.worker.lease_seconds == 30
    assert settings.worker.heartbeat_seconds == 5
    assert settings.retention.dead_count == 500


@pytest.mark.proves("M15", "M16")
def test_environment_and_dicts_are_the_same_tree() -> None:
    environ = {
        "DURIO_WORKER__CONCURRENCY": "20",
        "DURIO_LOG__FORMAT": "json",
        "DURIO_URL": "sqlite:///x.db",
        "DURIO_SOMETHING": "of somebody else",
        "PATH": "/bin",
    }
    tree = settings_from_environment(environ)
    assert tree == {"worker": {"concurrency": "20"}, "log": {"format": "json"}}
    settings = settings_from(merged({"worker": {"prefetch": 0}}, tree))
    assert settings.worker == WorkerSettings(concurrency=20, prefetch=0)
    assert settings.log.format == "json"
    assert settings_from(settings) is settings


def test_the_later_tree_wins_field_by_field() -> None:
    trees = ({"a": {"x": 1, "y": 1}, "b": 1}, {"a": {"y": 2}, "b": 2})
    assert merged(*trees) == {"a": {"x": 1, "y": 2}, "b": 2}


@pytest.mark.parametrize("name", ["DURIO_CONCURRENCY", "DURIO_WORKER_CONCURRENCY"])
def test_a_variable_without_its_group_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        settings_from_environment({name: "20"})
    assert "DURIO_WORKER__CONCURRENCY" in caught.value.cure


@pytest.mark.parametrize(
    ("name", "cure"),
    [("DURIO_URLL", "Did you mean 'DURIO_URL'?"), ("DURIO_LOG", "DURIO_LOG__")],
)
def test_a_variable_that_is_nearly_ours_is_refused(name: str, cure: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        settings_from_environment({name: "x"})
    assert cure in caught.value.cure


def test_variables_of_a_cluster_are_left_alone() -> None:
    """A service named durio sets these in every container."""
    names = ["DURIO_PORT", "DURIO_SERVICE_HOST", "DURIO_PORT_80_TCP_ADDR"]
    assert settings_from_environment(dict.fromkeys(names, "x")) == {}


def test_a_level_in_any_case() -> None:
    assert settings_from({"log": {"level": "debug"}}).log.level == "DEBUG"


def test_only_trees_are_merged() -> None:
    with pytest.raises(InvalidOption, match="cannot be a list"):
        merged({}, [1])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"wroker": {}}, "Did you mean 'worker'"),
        ({"worker": {"concurency": 1}}, "Did you mean 'concurrency'"),
        ({"worker": {"concurrency": 0}}, "1 to 10000"),
        ({"worker": {"concurrency": "many"}}, "settings"),
        ({"worker": 5}, "settings"),
        ({"worker": {"prefetch": -1}}, "0 to 10000"),
        ({"worker": {"processes": 257}}, "0 to 256"),
        ({"worker": {"processes": -1}}, "0 or more"),
        ({"worker": {"heartbeat_seconds": 20}}, "at most a third"),
        ({"worker": {"heartbeat_seconds": 0}}, "more than 0"),
        ({"payload": {"bytes_max": -1}}, "0 or more"),
        ({"retention": {"dead_count": -1}}, "0 or more"),
        ({"log": {"level": "LOUD"}}, "DEBUG or INFO"),
        ({"log": {"level": 5}}, "DEBUG or INFO"),
        ({"log": 5}, "settings"),
        ({"wroker": {"x": 1}}, "Did you mean 'worker'"),
        ({"wroker": 5}, "Did you mean 'worker'"),
    ],
    ids=str,
)
def test_bad_ones_are_refused(bad: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        settings_from(bad)


def test_a_group_that_is_none_does_not_hide_a_stronger_one() -> None:
    assert merged({"a": 5}, {"a": {"x": 1}}) == {"a": {"x": 1}}

"""Stop requests: a drain by an operator does not count as the first signal."""

from durio.telemetry.emit import Emitter
from durio.worker.stop_control import StopControl
from durio.worker.worker_config import WorkerIdentity


def control() -> StopControl:
    return StopControl(Emitter(), WorkerIdentity())


def test_second_request_ends_the_grace() -> None:
    stop = control()
    stop.request()
    assert stop.requested.is_set()
    assert not stop.immediate.is_set()
    stop.request()
    assert stop.immediate.is_set()


def test_first_request_after_a_drain_keeps_the_grace() -> None:
    stop = control()
    stop.drain()
    assert stop.requested.is_set()
    stop.request()
    assert not stop.immediate.is_set()
    stop.request()
    assert stop.immediate.is_set()


def test_drain_after_a_request_changes_nothing() -> None:
    stop = control()
    stop.request()
    stop.drain()
    assert not stop.immediate.is_set()

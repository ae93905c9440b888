from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from durio.model.errors import StoreFull, StoreUnavailable, UsageError
from durio.testing.clock import VirtualClock, run_virtual
from tests.faults.faulty_store import (
    METHODS,
    FaultScript,
    FaultyStore,
    RecordedCall,
    ScriptedFault,
)


class Notebook:
    """Not a store: it answers each call with its arguments, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def answer(*args: Any, **options: Any) -> Any:
            self.asked.append(method)
            return args, options

        return answer


def run(main: Callable[[FaultyStore, Notebook, VirtualClock], Awaitable[Any]]) -> Any:
    async def inside(clock: VirtualClock) -> Any:
        notebook = Notebook()
        return await main(FaultyStore(notebook, clock), notebook, clock)

    return run_virtual(inside)


def test_every_method_of_a_store_is_passed_on():
    async def main(faulty: FaultyStore, notebook: Notebook, _: VirtualClock) -> None:
        for method in METHODS:
            assert await getattr(faulty, method)(1, a=2) == ((1,), {"a": 2})
        assert sorted(notebook.asked) == METHODS

    run(main)
    assert {"enqueue", "exchange", "renew", "wait", "health", "find"} < set(METHODS)
    assert all(vars(FaultyStore)[method] for method in METHODS)


def test_fail_means_not_executed():
    async def main(faulty: FaultyStore, notebook: Notebook, _: VirtualClock) -> None:
        faulty.fail("enqueue", times=2)
        for _attempt in range(2):
            with pytest.raises(StoreUnavailable) as caught:
                await faulty.enqueue([])
            assert not caught.value.unknown
        assert notebook.asked == []
        await faulty.enqueue([])
        assert notebook.asked == ["enqueue"]
        assert faulty.times("enqueue") == 3

    run(main)


def test_fail_takes_another_error():
    async def main(faulty: FaultyStore, _: Notebook, __: VirtualClock) -> None:
        faulty.fail("enqueue", error=StoreFull("no space"))
        with pytest.raises(StoreFull):
            await faulty.enqueue([])

    run(main)


def test_lose_reply_means_executed_but_unknown():
    async def main(faulty: FaultyStore, notebook: Notebook, _: VirtualClock) -> None:
        faulty.lose_reply("exchange")
        with pytest.raises(StoreUnavailable) as caught:
            await faulty.exchange(1, [], [], 5)
        assert caught.value.unknown
        assert notebook.asked == ["exchange"]
        await faulty.exchange(1, [], [], 5)

    run(main)


def test_slow_is_late_by_the_clock():
    async def main(faulty: FaultyStore, _: Notebook, clock: VirtualClock) -> None:
        start = clock.monotonic()
        faulty.slow("renew", seconds=3)
        faulty.slow("renew", seconds=100, times=1)
        faulty.lose_reply("renew")
        with pytest.raises(StoreUnavailable):
            await faulty.renew(1, 30)
        assert clock.monotonic() - start == 103
        await faulty.renew(1, 30)
        assert clock.monotonic() - start == 106

    run(main)


def test_on_lets_the_test_decide():
    async def main(faulty: FaultyStore, _: Notebook, __: VirtualClock) -> None:
        seen: list[tuple[str, int]] = []

        def second(method: str, nth: int) -> ScriptedFault | None:
            seen.append((method, nth))
            return ScriptedFault(before=StoreUnavailable("now")) if nth == 2 else None

        faulty.on("leave", second)
        await faulty.leave(1)
        with pytest.raises(StoreUnavailable, match="now"):
            await faulty.leave(1)
        await faulty.leave(1)
        assert seen == [("leave", 1), ("leave", 2), ("leave", 3)]

    run(main)


def test_sometimes_follows_the_seed():
    async def main(faulty: FaultyStore, notebook: Notebook, clock: VirtualClock) -> Any:
        start = clock.monotonic()
        faulty.sometimes(fail=0.2, lose_reply=0.2, slow=0.2, seconds=1)
        for _attempt in range(100):
            try:
                await faulty.promote(1)
            except StoreUnavailable as error:
                notebook.asked.append(f"unknown={error.unknown}")
        await faulty.close()
        return notebook.asked, clock.monotonic() - start

    asked, took_seconds = run(main)
    assert run(main) == (asked, took_seconds)
    assert 5 < asked.count("unknown=True") < 40
    assert 5 < asked.count("unknown=False") < 40
    assert 5 < took_seconds < 40


def test_cut_and_heal():
    async def main(faulty: FaultyStore, notebook: Notebook, _: VirtualClock) -> None:
        await faulty.open()
        faulty.cut()
        faulty.fail("get")
        for call in (faulty.get([]), faulty.wait(1, 5), faulty.renew(1, 30)):
            with pytest.raises(StoreUnavailable):
                await call
        faulty.heal()
        await faulty.get([])
        assert notebook.asked == ["open", "get"]

    run(main)


def test_calls_are_recorded():
    async def main(faulty: FaultyStore, _: Notebook, __: VirtualClock) -> None:
        await faulty.prune(10, dead_count=3)
        faulty.lose_reply("prune")
        with pytest.raises(StoreUnavailable):
            await faulty.prune(11, dead_count=3)
        first, second = faulty.calls
        answer = ((10,), {"dead_count": 3})
        assert first == RecordedCall("prune", 1, (10,), {"dead_count": 3}, answer)
        assert isinstance(second.error, StoreUnavailable)
        assert second.answer is not None  # what the caller did not get

    run(main)


def test_a_misspelt_method_is_refused():
    async def main(faulty: FaultyStore, _: Notebook, __: VirtualClock) -> None:
        with pytest.raises(UsageError, match="exchagne"):
            faulty.fail("exchagne")

    run(main)


def test_no_word_of_the_script_hides_a_method_of_the_store() -> None:
    assert not set(METHODS) & set(vars(FaultScript))

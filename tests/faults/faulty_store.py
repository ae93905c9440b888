"""A store that fails on demand and wraps a real one.

    faulty = FaultyStore(store, clock)
    faulty.fail("enqueue", times=2)            # not executed, and the caller knows
    faulty.lose_reply("exchange")              # executed, and the caller does not know
    faulty.slow("renew", seconds=3)            # executed three seconds late
    faulty.sometimes("*", fail=0.01, lose_reply=0.01)
    faulty.cut()                               # unavailable until faulty.heal()
    assert faulty.times("exchange") == 4

A fault replaces no result: the real store executes every call that is executed.
"""

from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from durio.model.errors import StoreError, StoreUnavailable, UsageError
from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.testing.clock import VirtualClock

RECORDED_MAX = 10_000
ALWAYS = 1_000_000_000  # times
# Faults for every method ("*") do not apply to these: without them there is no test.
EXEMPT_METHODS = {"open", "close"}
# It returns at a wakeup or at its timeout: time must go on meanwhile.
WAITING_METHODS = {"wait"}


class ScriptedFault(NamedTuple):
    """What goes wrong with one call, in this order: late, not executed, reply lost."""

    seconds: float = 0.0
    before: StoreError | None = None  # raised instead of the call
    after: StoreError | None = None  # raised instead of its answer


@dataclass(slots=True)
class RecordedCall:
    """One call as it was made, and its result."""

    method: str
    nth: int  # of this method, from 1
    args: tuple[Any, ...]
    options: dict[str, Any]
    answer: Any = None  # the real store's: also when the caller did not get it
    error: BaseException | None = None  # what the caller got instead


class FaultRule:
    """Faults for some calls of one method, or of any."""

    def __init__(
        self,
        method: str,
        times: int,
        make: Callable[[str, int], ScriptedFault | None],
    ) -> None:
        self.method = method
        self.times = times
        self.make = make

    def fault_for(self, method: str, nth: int) -> ScriptedFault | None:
        """Return the fault for this call, if this rule has one left."""
        meant = {method} if method in EXEMPT_METHODS else {method, "*"}
        if self.times <= 0 or self.method not in meant:
            return None
        fault = self.make(method, nth)
        self.times -= fault is not None
        return fault


METHODS = [name for name in dir(Store) if not name.startswith("_")]


class FaultScript:
    """Which calls fail, and how: the part of a FaultyStore that tests use."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.rules: list[FaultRule] = []
        self.calls: deque[RecordedCall] = deque(maxlen=RECORDED_MAX)
        self.counter: Counter[str] = Counter()
        self.is_cut = False

    def fail(
        self, method: str, *, times: int = 1, error: StoreError | None = None
    ) -> None:
        """Do not execute the next calls; they raise StoreUnavailable, or `error`."""
        self.rule(
            method,
            times,
            lambda name, _: ScriptedFault(before=error or not_executed(name)),
        )

    def lose_reply(self, method: str, *, times: int = 1) -> None:
        """Execute the next calls, but answer that the outcome is unknown."""
        self.rule(method, times, lambda name, _: ScriptedFault(after=reply_lost(name)))

    def slow(self, method: str, *, seconds: float, times: int = ALWAYS) -> None:
        """Execute the next calls this much later."""
        self.rule(method, times, lambda _name, _nth: ScriptedFault(seconds=seconds))

    def on(
        self, method: str, decide: Callable[[str, int], ScriptedFault | None]
    ) -> None:
        """Let a function decide: it gets the method and its call number, from 1."""
        self.rule(method, ALWAYS, decide)

    def sometimes(
        self,
        method: str = "*",
        *,
        fail: float = 0.0,
        lose_reply: float = 0.0,
        slow: float = 0.0,
        seconds: float = 1.0,
    ) -> None:
        """Fail random calls, by the clock's random numbers; shares are from 0 to 1."""

        def decide(name: str, _nth: int) -> ScriptedFault | None:
            share = self.clock.random()
            if share < fail:
                return ScriptedFault(before=not_executed(name))
            if share < fail + lose_reply:
                return ScriptedFault(after=reply_lost(name))
            if share < fail + lose_reply + slow:
                return ScriptedFault(seconds=seconds)
            return None

        self.rule(method, ALWAYS, decide)

    def cut(self) -> None:
        """Make the store unavailable: nothing is executed."""
        self.is_cut = True

    def heal(self) -> None:
        """Make the store available, and remove all scripted faults."""
        self.is_cut = False
        self.rules.clear()

    def times(self, method: str) -> int:
        """Return how often a method was called, executed or not."""
        return self.counter[method]

    def record(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> RecordedCall:
        """Count and keep a call, in call order."""
        self.counter[method] += 1
        call = RecordedCall(method, self.counter[method], args, options)
        self.calls.append(call)
        return call

    def rule(
        self, method: str, times: int, make: Callable[[str, int], ScriptedFault | None]
    ) -> None:
        """Add a rule; rules apply in the order in which they were added."""
        if method not in {"*", *METHODS}:
            raise UsageError(
                f"a store has no method {method!r}", cure=f"It has {METHODS}."
            )
        self.rules.append(FaultRule(method, times, make))

    def fault_for(self, method: str, nth: int) -> ScriptedFault:
        """Return the combined fault of all rules for this call."""
        if self.is_cut and method not in EXEMPT_METHODS:
            return ScriptedFault(before=not_executed(method))
        fault = ScriptedFault()
        for rule in self.rules:
            more = rule.fault_for(method, nth)
            if more is not None:
                fault = ScriptedFault(
                    fault.seconds + more.seconds, more.before, more.after
                )
            if fault.before or fault.after:
                break
        return fault


class FaultyStore(FaultScript, Store):
    """A store with every method of the real one, plus the faults of its script.

    Under a VirtualClock time stands still while the real store works, because it may
    work in a real thread. Use `hold=False` for a store that sleeps by the same clock.
    """

    def __init__(self, store: Store, clock: Clock, *, hold: bool = True) -> None:
        super().__init__(clock)
        self.store = store
        self.hold = hold

    async def forward(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Execute one call, and record what its caller gets."""
        call = self.record(method, args, options)
        try:
            await self.execute(call)
        except BaseException as error:
            call.error = error
            raise
        return call.answer

    async def execute(self, call: RecordedCall) -> None:
        """Apply the fault of a call, and call the real store."""
        fault = self.fault_for(call.method, call.nth)
        if fault.seconds:
            await self.clock.sleep(fault.seconds)
        if fault.before:
            raise fault.before
        with self.time_held(call.method):
            call.answer = await self.call_store(call)
        if fault.after:
            raise fault.after

    def forward_nowait(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Forward a method that does not block; no faults apply to it."""
        call = self.record(method, args, options)
        call.answer = self.call_store(call)
        return call.answer

    def call_store(self, call: RecordedCall) -> Any:
        return getattr(self.store, call.method)(*call.args, **call.options)

    def time_held(self, method: str) -> AbstractContextManager[None]:
        """Hold a virtual clock while the real store works; ignore other clocks."""
        if (
            self.hold
            and method not in WAITING_METHODS
            and isinstance(self.clock, VirtualClock)
        ):
            return self.clock.held()
        return nullcontext()


def add_store_methods(
    kind: type[Any], call: Callable[..., Any], call_nowait: Callable[..., Any]
) -> None:
    """Give a class every method of the port that it does not define itself.

    The methods are generated: a method that the port gains can fail from then on.
    """
    for name in METHODS:
        if name not in kind.__dict__:
            is_async = iscoroutinefunction(getattr(Store, name))
            setattr(
                kind, name, forwarding_method(name, call if is_async else call_nowait)
            )


def forwarding_method(method: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that forwards; it returns a coroutine if `call` does."""

    def asked(self: Any, *args: Any, **options: Any) -> Any:
        return call(self, method, args, options)

    return asked


add_store_methods(FaultyStore, FaultyStore.forward, FaultyStore.forward_nowait)


def not_executed(method: str) -> StoreUnavailable:
    return StoreUnavailable(f"scripted fault: {method} was not executed", unknown=False)


def reply_lost(method: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"scripted fault: the reply of {method} is lost", unknown=True
    )

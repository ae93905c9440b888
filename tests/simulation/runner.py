"""Plays many worlds in parallel, in separate processes, and reports them in order.

Every few seeds one is played a second time, in another process with another hash seed:
the two histories must be equal byte for byte.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from typing import final

import msgspec

from tests.checkout import ROOT
from tests.simulation.account import BROKEN_WORLD, Account
from tests.simulation.checks import Violation

TWIN_EVERY = 20
WORLD_SECONDS_MAX = 300.0  # real seconds: a world that does not end is a finding
WORLDS_PER_PROCESS = 200  # then a new one: memory must not grow over many worlds
LINE_BYTES_MAX = 64 * 1024 * 1024

Tell = Callable[[Account], None]


@dataclass(frozen=True, slots=True)
class WorldSelection:
    """Which worlds to play."""

    first: int = 1
    seeds: int | None = None
    only: Sequence[int] = ()  # these seeds, instead of a range
    seconds: float | None = None  # no world begins later
    jobs: int = 1
    twin_every: int = TWIN_EVERY


@final
class WorldProcess:
    """A process that plays one world after another."""

    def __init__(self, hash_seed: int) -> None:
        self.hash_seed = hash_seed
        self.process: Process | None = None
        self.worlds = 0

    async def play(self, seed: int) -> Account:
        """Play one world; retry once if it is late: the machine may have stalled."""
        with suppress(TimeoutError):
            return await self.try_to_play(seed)
        with suppress(TimeoutError):
            account = await self.try_to_play(seed)
            account.is_second_try = True
            return account
        return failed(seed, f"twice not over after {WORLD_SECONDS_MAX:.0f} s")

    async def try_to_play(self, seed: int) -> Account:
        """Play one world; the death of the process becomes a failed account."""
        loop = asyncio.get_running_loop()
        if self.worlds >= WORLDS_PER_PROCESS:
            await self.end()
        began = loop.time()
        process = self.process or await self.start()
        self.worlds += 1
        try:
            async with asyncio.timeout(WORLD_SECONDS_MAX):
                account = await ask(process, seed)
        except TimeoutError:
            await self.end()
            raise
        if account is None:
            account = failed(seed, f"its process ended: {await process.wait()}")
        account.wall_seconds = loop.time() - began
        if account.broken == [BROKEN_WORLD]:
            await self.end()  # its state is unknown
        return account

    async def start(self) -> Process:
        """Start in a new session, so that Ctrl-C reaches only the runner."""
        self.worlds = 0
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.simulation.world_process",
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(self.hash_seed)},
            stdin=PIPE,
            stdout=PIPE,
            limit=LINE_BYTES_MAX,
            start_new_session=True,
        )
        return self.process

    async def end(self) -> None:
        """Kill the process without waiting for its world."""
        process, self.process = self.process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            # Read the pipe to its end, or its transport warns when it is collected.
            await process.communicate()


async def ask(process: Process, seed: int) -> Account | None:
    """Ask for one world; None if the process ended meanwhile."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(ConnectionError):
        process.stdin.write(b"%d\n" % seed)
        await process.stdin.drain()
        if told := await process.stdout.readline():
            return msgspec.json.decode(told, type=Account)
    return None


def failed(seed: int, what: str) -> Account:
    """Return the account of a world that returned none."""
    return Account(seed=seed, violations=[Violation(BROKEN_WORLD, None, what)])


@final
class Runner:
    """Distributes the seeds, and reports the accounts in order."""

    def __init__(self, plan: WorldSelection, tell: Tell) -> None:
        self.plan = plan
        self.tell = tell
        self.dealt: deque[int] = deque()
        self.waiting: dict[int, Account] = {}

    async def run(self) -> None:
        seeds = self.seeds(asyncio.get_running_loop())
        async with asyncio.TaskGroup() as group:
            for number in range(self.plan.jobs):
                group.create_task(self.work(number, seeds))

    def seeds(self, loop: asyncio.AbstractEventLoop) -> Iterator[tuple[int, int]]:
        """Seed and position, while there is time."""
        plan = self.plan
        until = None if plan.seconds is None else loop.time() + plan.seconds
        some = plan.only or islice(count(plan.first), plan.seeds)
        for place, seed in enumerate(some):
            if until is not None and loop.time() >= until:
                return
            self.dealt.append(seed)
            yield place, seed

    async def work(self, number: int, seeds: Iterator[tuple[int, int]]) -> None:
        """Use a process, and a twin for second plays; only one plays at a time."""
        seat, twin = WorldProcess(2 * number + 1), WorldProcess(2 * number + 2)
        try:
            for place, seed in seeds:
                account = await seat.play(seed)
                if place % self.plan.twin_every == 0:
                    again = await twin.play(seed)
                    # Other code may give another history; the summary reports that.
                    if again.program == account.program or not again.program:
                        account.twin_digest = again.digest
                    else:
                        await seat.end()
                        await twin.end()
                self.take(account)
        finally:
            await seat.end()
            await twin.end()

    def take(self, account: Account) -> None:
        """Report an account after all accounts before it."""
        self.waiting[account.seed] = account
        while self.dealt and self.dealt[0] in self.waiting:
            self.tell(self.waiting.pop(self.dealt.popleft()))


def run(plan: WorldSelection, tell: Tell) -> None:
    asyncio.run(Runner(plan, tell).run())

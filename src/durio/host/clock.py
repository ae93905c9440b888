"""The machine's own time, sleep, randomness and ids."""

import asyncio
import os
import platform
import random
import sys
import threading
import time
from functools import cache
from typing import final

from durio.model.ids import uuid7

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
BOOT_ID_CHARS_MAX = 64
COUNTER_BITS = 12  # what an id has room for beside its milliseconds


class ProcessRandom:
    """Random numbers and ids of this process.

    There is one per process, so that ids grow whichever clock makes them. Milliseconds
    and counter are kept as one number: a full counter simply runs into the next
    millisecond, and a wall clock that steps back only makes the number grow by one.
    """

    def __init__(self) -> None:
        self.stamp = 0
        self.reseed()

    def reseed(self) -> None:
        """Start anew in a forked child: its parent would draw the same numbers."""
        # The parent's lock may have been held by a thread that the child does not have.
        self.lock = threading.Lock()
        # Ids must differ between processes; nobody needs to be kept from guessing them.
        generator = random.Random(os.urandom(32))  # noqa: S311
        self.random = generator.random
        self.bits = generator.getrandbits

    def new_id(self) -> bytes:
        """A UUIDv7 above every one before it."""
        with self.lock:
            stamp = time.time_ns() // 1_000_000 << COUNTER_BITS
            if stamp <= self.stamp:
                stamp = self.stamp + 1
            self.stamp = stamp
        # uuid7 takes the low bits of the stamp as its counter.
        return uuid7(stamp >> COUNTER_BITS, stamp, self.bits(62))


PROCESS_RANDOM = ProcessRandom()
os.register_at_fork(after_in_child=PROCESS_RANDOM.reseed)


@final
class HostClock:
    """The real clock, as `ports.clock.Clock` asks for it."""

    def now(self) -> float:
        """Wall-clock seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back, common to all processes of one boot."""
        # time.monotonic() promises this only within one process.
        return time.clock_gettime(time.CLOCK_MONOTONIC)

    def boot_id(self) -> str:
        """Names this boot of this machine: monotonic times compare only within it."""
        return boot_id()

    async def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        await asyncio.sleep(seconds)

    def random(self) -> float:
        """An even share from 0 to below 1, for jitter."""
        return PROCESS_RANDOM.random()

    def new_id(self) -> bytes:
        """A new job id: grows within a process, unique everywhere."""
        return PROCESS_RANDOM.new_id()


@cache
def boot_id() -> str:
    """The kernel's name for this boot, from whichever source this system has."""
    # Where no source answers, all boots share a name: leases of before a restart last
    # too long, but no live worker is taken for a dead one.
    found = kernel_boot_id() or f"host-{platform.node()}"
    return found[:BOOT_ID_CHARS_MAX]


if sys.platform == "linux":

    def kernel_boot_id() -> str | None:
        """From /proc."""
        try:
            with open(BOOT_ID_FILE, encoding="ascii") as file:  # noqa: PTH123 - pathlib costs an import
                return file.read().strip()
        except OSError:
            return None

else:
    from durio.host.sysctl import sysctl_boot_id as kernel_boot_id

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
COUNTER_BITS = 12  # room in an id beside its milliseconds


class ProcessRandom:
    """Random numbers and ids of this process.

    There is one per process, so that ids increase whichever clock makes them. Milliseconds
    and counter are kept as one number: a full counter overflows into the next millisecond,
    and if the wall clock steps back the number still increases by one.
    """

    def __init__(self) -> None:
        self.stamp = 0
        self.reseed()

    def reseed(self) -> None:
        """Reseed in a forked child, which would draw the same numbers as its parent."""
        # A thread of the parent, absent in the child, may have held the lock.
        self.lock = threading.Lock()
        # Ids must differ between processes; they need not be hard to guess.
        generator = random.Random(os.urandom(32))  # noqa: S311
        self.random = generator.random
        self.bits = generator.getrandbits

    def new_id(self) -> bytes:
        """Return a UUIDv7 above all earlier ones of this process."""
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
    """The real clock; see `ports.clock.Clock`."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        # time.monotonic() guarantees this only within one process.
        return time.clock_gettime(time.CLOCK_MONOTONIC)

    def boot_id(self) -> str:
        return boot_id()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random(self) -> float:
        return PROCESS_RANDOM.random()

    def new_id(self) -> bytes:
        return PROCESS_RANDOM.new_id()

    def secret_bytes(self, size: int) -> bytes:
        return os.urandom(size)


@cache
def boot_id() -> str:
    """Return the kernel's name for this boot, from the source that this system has."""
    # Without a source all boots share a name: leases from before a restart last too long,
    # but no live worker is considered dead.
    found = kernel_boot_id() or f"host-{platform.node()}"
    return found[:BOOT_ID_CHARS_MAX]


if sys.platform == "linux":

    def kernel_boot_id() -> str | None:
        try:
            with open(BOOT_ID_FILE, encoding="ascii") as file:  # noqa: PTH123 - pathlib costs an import
                return file.read().strip()
        except OSError:
            return None

else:
    from durio.host.sysctl import sysctl_boot_id as kernel_boot_id

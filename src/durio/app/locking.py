"""What an App has for locks and breakers: `app.lock`, `app.once`, `app.breaker`.

Their modules are loaded on first use: programs that only enqueue need none of them.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from durio.app.scheduling import SchedulingApp
from durio.host.signals import process_name
from durio.model.ids import id_text
from durio.model.quantities import Duration, seconds
from durio.telemetry.log import in_job

if TYPE_CHECKING:
    from durio.client.lock import Lock
    from durio.client.once import Once
    from durio.model.breaker_rule import Breaker
    from durio.model.lock import LockHolder
    from durio.worker.breaker_call import BreakerBlock


class LockingApp(SchedulingApp):
    """The part of an App that has locks and breakers."""

    breakers: "Mapping[str, Breaker]"  # by name, as declared

    def lock(
        self,
        name: str,  # of the lock, among all processes of this App
        *,
        wait: Duration = 5.0,  # how long to wait for another holder; 0: not at all
    ) -> "Lock":
        """Return a lock that one block holds at a time: `async with app.lock("invoice:42")`.

        In code without an event loop write `with`. The lock is renewed while the block runs,
        and free within 30 s after its process has died. Raises LockTimeout after `wait`,
        and LockLost if it was lost while the block ran. `lock.token` grows from
        holder to holder.

            with app.lock("invoice:42", wait="1s") as lock:
                print(lock.token)
        """
        locks = importlib.import_module("durio.model.lock")
        return importlib.import_module("durio.client.lock").Lock(
            self,
            locks.checked_lock_name(name),
            self._lock_holder(),
            seconds(wait, "wait"),
        )

    def once(
        self,
        key: str,  # of the work, among all processes of this App
        *,
        ttl: Duration = "24h",  # how long the work counts as done
    ) -> "Once":
        """Claim a key before a side effect: `async with app.once("charge:42") as first`.

        `first` is true in the one block that is to do the work. When that block ends, the key
        counts as done for `ttl`; if it raises, the key is free at once, and within 30 s
        if its process dies. For everybody else `first` is false, and `first.is_done` says
        whether the work was done. In code without an event loop write `with`.

            with app.once("charge:42", ttl="7d") as first:
                if first:
                    print("charging")
        """
        locks = importlib.import_module("durio.model.lock")
        return importlib.import_module("durio.client.once").Once(
            self,
            locks.checked_lock_name(key),
            self._lock_holder(),
            locks.checked_ttl(ttl),
        )

    def breaker(
        self,
        name: str,  # of a breaker that the App declares
    ) -> "BreakerBlock":
        """Make a call behind a breaker, inside a task: `async with app.breaker("smtp")`.

        The block raises BreakerOpen while no call is made; the job then runs again later,
        and no attempt is used. An error in the block counts as a failed call if it is one
        of the dependency. In a sync task write `with`. Raises UnknownBreaker.

            async def deliver(address: str) -> None:
                async with app.breaker("smtp"):
                    print("sending to", address)
        """
        if name not in self.breakers:
            rules = importlib.import_module("durio.model.breaker_rule")
            raise rules.unknown_breaker(name, self.breakers)
        return importlib.import_module("durio.worker.breaker_call").BreakerBlock(name)

    def _lock_holder(self) -> "LockHolder":
        attempt = in_job.get()
        return importlib.import_module("durio.model.lock").LockHolder(
            worker=str(process_name()),
            job=None if attempt is None else id_text(attempt.job_id),
            task=None if attempt is None else attempt.task,
        )

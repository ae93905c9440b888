"""No SQLite handle ever crosses a fork: stores close theirs before it.

A child cannot use an inherited connection, cannot close it (that could write to the shared
log), and cannot even open the file anew beside it: within one process SQLite remembers
which locks it holds, and the child inherits that memory without the locks. So whoever
forks waits for the transaction at hand, all connections are closed, and both sides open
new ones when they need them. `subprocess` does not come here: it never runs our code.
"""

import os
import weakref
from typing import Protocol

from durio.stores.sqlite.writer import opening


class Forks(Protocol):
    """Somebody with handles that must not cross a fork."""

    def before_fork(self) -> None:
        """Close what must not be shared, and hold still."""
        ...

    def after_fork_in_parent(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Forget the parent's threads, locks and sockets."""
        ...


_watched: "weakref.WeakSet[Forks]" = weakref.WeakSet()
_holding: list[Forks] = []


def watch_forks(who: Forks) -> None:
    """Tell `who` of every fork as long as it lives."""
    _watched.add(who)


def forget_forks(who: Forks) -> None:
    """No more: it is closed."""
    _watched.discard(who)


def _before() -> None:
    opening.acquire()
    for who in list(_watched):
        who.before_fork()
        _holding.append(who)


def _in_parent() -> None:
    while _holding:
        _holding.pop().after_fork_in_parent()
    opening.release()


def _in_child() -> None:
    while _holding:
        _holding.pop().after_fork_in_child()
    opening.release()


os.register_at_fork(
    before=_before, after_in_parent=_in_parent, after_in_child=_in_child
)

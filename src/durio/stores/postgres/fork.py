"""No connection crosses a fork: the child opens its own and never touches the parent's.

Both sides of a fork share the sockets. Whatever the child said or read there, a goodbye
included, would fall into the parent's conversation: so it forgets them without a word.
"""

import os
import weakref
from typing import Protocol


class Forks(Protocol):
    """Somebody with connections that must not cross a fork."""

    def after_fork_in_child(self) -> None:
        """Forget the parent's connections."""
        ...


_watched: "weakref.WeakSet[Forks]" = weakref.WeakSet()


def watch_forks(who: Forks) -> None:
    """Tell `who` of every fork as long as it lives."""
    _watched.add(who)


def forget_forks(who: Forks) -> None:
    """No more: it is closed."""
    _watched.discard(who)


def _in_child() -> None:
    for who in list(_watched):
        who.after_fork_in_child()


os.register_at_fork(after_in_child=_in_child)

"""Names of apps, queues, tasks and keys: which are valid, and how they are stored."""

import difflib
import re
from collections.abc import Collection, Iterable

from durio.model.errors import InvalidName

APP_SHAPE = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.ASCII)
NAME_SHAPE = re.compile(r"[\w.:-]{1,128}", re.ASCII)
KEY_BYTES_MAX = 255


def check_app(name: str) -> str:
    """Return the name of an App, which is its namespace, if it is valid."""
    if not isinstance(name, str) or APP_SHAPE.fullmatch(name) is None:
        raise InvalidName(
            f"an app cannot be named {str(name)[:80]!r}",
            cure="Use a-z, then a-z 0-9 _ -, at most 63 characters.",
        )
    return name


def check_name(kind: str, name: str) -> str:
    """Return a queue or task name: 1 to 128 letters, digits or any of `_ . : -`."""
    if not isinstance(name, str) or NAME_SHAPE.fullmatch(name) is None:
        raise InvalidName(
            f"a {kind} cannot be named {str(name)[:80]!r}",
            cure="Use letters, digits and _ . : - only, 1 to 128 of them.",
        )
    return name


def check_task(name: str) -> str:
    """Return the name of a task as it is declared; it may end in `*`, for many names."""
    if not isinstance(name, str) or "*" not in name or name == "*":
        return name if name == "*" else check_name("task", name)
    if "*" in name[:-1]:
        raise InvalidName(
            f"a task cannot be named {name[:80]!r}: * is not at the end",
            cure='Write name="email:*" for all names that begin with "email:".',
        )
    check_name("task", name[:-1])
    return name


def check_key(key: str, what: str = "an idempotency key") -> str:
    """Return a key: any text of 1 to 255 bytes without NUL; `what` names it in errors."""
    if not isinstance(key, str):
        raise InvalidName(
            f"{what} must be text, not {type(key).__name__}", cure="Use str(...)."
        )
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= KEY_BYTES_MAX or "\0" in key:
        raise InvalidName(
            f"{key[:80]!r} cannot be {what}",
            cure=f"Use 1 to {KEY_BYTES_MAX} bytes of valid text without NUL.",
        )
    return key


def lane(app: str, queue: str) -> str:
    """Return the stored name of a queue; two apps never share one."""
    return f"{app}:{queue}"


def namespace_of(stored_lane: str) -> str:
    return stored_lane.partition(":")[0]


def namespace_span(namespace: str) -> tuple[str, str]:
    """Return the range [first, end) of all its lanes; `;` follows `:` in ASCII."""
    return f"{namespace}:", f"{namespace};"


def queue_of(stored_lane: str) -> str:
    """Return the queue's name without its namespace."""
    return stored_lane.partition(":")[2]


def task_name(app: str, name: str) -> str:
    """Return the stored name of a task; a name without a dot belongs to this App."""
    return name if "." in name else f"{app}.{name}"


def is_prefix(task: str) -> bool:
    """Whether this is the name of a handler for many names, such as `shop.email:*`."""
    return task.endswith("*")


def known_as(task: str, names: Collection[str]) -> str | None:
    """Return the name among these that means the task; None if there is none.

    It is the task's own name, or else the longest prefix that fits, such as `shop.email:*`.
    """
    if task in names:
        return task
    fitting = [name for name in names if is_prefix(name) and task.startswith(name[:-1])]
    return max(fitting, key=len, default=None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' or an empty text, for the end of an error's cure."""
    close = close_name(word, known)
    return "" if close is None else f" Did you mean {close!r}?"


def close_name(word: str, known: Iterable[str]) -> str | None:
    """Return the other name that is most like this one; None if none is."""
    others = sorted(name for name in known if name != word)
    close = difflib.get_close_matches(word, others, n=1, cutoff=0.6)
    return close[0] if close else None

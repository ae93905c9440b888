"""Shared by the long commands of the tests: how they stop, and their arguments.

A verdict has the exit codes 0, 1 and 2. A failure of the command itself must not look
like a verdict: neither Ctrl-C, nor a closed pipe, nor a full disk.
"""

import errno
import os
import signal  # noqa: TID251 - it is what stops a command
import sys
from argparse import ArgumentTypeError
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

STOPPED = 130  # as a shell reports it after Ctrl-C
NOT_WRITTEN = 74  # as in sysexits.h
NO_ROOM = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO}


@contextmanager
def careful() -> Generator[None]:
    """Let Ctrl-C and SIGTERM stop the block, once, and end it without a traceback."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each, handler in before.items():
        if handler is not signal.SIG_IGN:  # the parent process ignores it on purpose
            signal.signal(each, stop)
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        if not isinstance(error, BrokenPipeError):
            print(f"cannot write: {error}", file=sys.stderr)
        drop_output()
        sys.exit(NOT_WRITTEN)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def stop(_number: int, _frame: FrameType | None) -> None:
    """The first signal stops; a second would only leave processes and folders behind."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def undisturbed() -> Generator[None]:
    """Delay Ctrl-C and SIGTERM until the block is complete."""
    both = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, both)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_children() -> None:
    """End children that were starting when the command stopped: no object knows them."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    for pid in path.read_text().split() if path.exists() else ():
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(int(pid), signal.SIGKILL)  # noqa: TID251 - a child of our own
            os.waitpid(int(pid), 0)


def drop_output() -> None:
    """Python flushes standard output at exit: it must not fail there again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def positive(text: str) -> float:
    """A number of seconds or minutes, or a rate per second."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):  # nan is refused as well
        raise ArgumentTypeError(f"{text} is not a number above 0")
    return value


def writable(text: str) -> Path:
    """A file for the figures, checked before hours of work and not after."""
    path = Path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder")
    if not path.parent.is_dir():
        raise ArgumentTypeError(f"{text}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentTypeError(f"{text} may not be written")
    return path


def writable_folder(text: str) -> Path:
    """A folder for a report; it is made if only the last part is missing."""
    path = Path(text)
    if path.is_dir():
        writable(str(path / "report"))
        return path
    return writable(text)

"""How far a long run is: a bar on a terminal, a line now and then in a log."""

import sys
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

LINES = 10  # per run, in a log


class Bar:
    """For a terminal."""

    def __init__(self, whole: float) -> None:
        self.progress = Progress(
            BarColumn(bar_width=32),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
        )
        self.task = self.progress.add_task("", total=whole)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show(self, done: float, note: str) -> None:
        self.progress.update(self.task, completed=done, description=note)

    def say(self, text: str) -> None:
        """Print above the bar."""
        self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Lines:
    """For a log."""

    def __init__(self, whole: float) -> None:
        self.whole = whole
        self.shown = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, done: float, note: str) -> None:
        """Print a line for every tenth of the whole."""
        part = int(LINES * done / self.whole)
        if part > self.shown:
            self.shown = part
            self.say(f"{100 * done / self.whole:3.0f} %  {note}")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def meter(whole: float) -> Bar | Lines:
    """A bar if standard error is a terminal, else lines."""
    return Bar(whole) if sys.stderr.isatty() else Lines(whole)

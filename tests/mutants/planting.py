"""A planted bug: a few words of the engine's source replaced, in a copy of it.

The engine has no switch for any of this. The package is copied to a temporary folder,
its text is changed there, and a separate process runs on that copy: the installed
package does not change. A patch whose words are missing, or occur twice, is an error: a
mutant that silently changes nothing would look like one that is never caught.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.checkout import ROOT

SOURCE = ROOT / "src" / "durio"


class PatchDoesNotFit(Exception):
    """The words that a patch replaces are missing, or occur more than once."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Words of one file of the engine, and their replacement."""

    file: str  # under src/durio
    old: str
    new: str

    def applied(self, source: Path = SOURCE) -> str:
        """Return the text of the file with the bug."""
        path = source / self.file
        if not path.is_file():
            raise PatchDoesNotFit(f"{self.file} does not exist any more")
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise PatchDoesNotFit(
                f"{self.file}: {count} places instead of one have {self.old!r}"
            )
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Seeds:
    """Simulated worlds, from seed 1 on: `play(seed)`, with these knobs and faults."""

    worlds: int = 80
    knobs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # These replace the faults that the seed draws: (second, kind, node, seconds, size).
    faults: tuple[tuple[float, str, str, float, float], ...] | None = None

    def name(self, seed: int) -> str:
        """Identifies the world; `--story` shows what happened in it."""
        known = [f"{name}={value}" for name, value in self.knobs.items()]
        known += sorted({f"only {kind}" for _, kind, *_ in self.faults or ()})
        return f"seed {seed} ({', '.join(known)})" if known else f"seed {seed}"


@dataclass(frozen=True, slots=True)
class Promises:
    """Promises of the conformance suite whose names start like this, on SQLite."""

    begins: str
    subject: str = "memory"


@dataclass(frozen=True, slots=True)
class Tests:
    """The tests of one file, for promises about code inside a task."""

    path: str


Killer = Seeds | Promises | Tests


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug, its description, and the checks that must catch it."""

    name: str
    wrong: str
    patches: tuple[Patch, ...]
    killers: tuple[Killer, ...]


def one_patch(
    name: str, wrong: str, file: str, old: str, new: str, *killers: Killer
) -> Mutant:
    """Return a mutant of one patch."""
    return Mutant(name, wrong, (Patch(file, old, new),), killers)


@contextmanager
def planted(mutant: Mutant) -> Iterator[Path]:
    """Yield a folder with the changed engine: the first entry of a process's path."""
    with TemporaryDirectory(prefix=f"mutant-{mutant.name}-") as folder:
        copy = Path(folder) / "durio"
        # Compiled files are copied too: only the changed ones are compiled again.
        shutil.copytree(SOURCE, copy)
        for patch in mutant.patches:
            text = patch.applied(copy)
            (copy / patch.file).write_text(text, encoding="utf-8")
        yield Path(folder)

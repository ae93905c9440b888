"""Numbered migrations, and the state of a database compared with this code."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Migration(NamedTuple):
    """One numbered step of a schema."""

    number: int
    name: str
    checksum: str
    text: str


class MigrationStatus(NamedTuple):
    """Names of migrations, by the state of a database compared with this code."""

    applied: list[str]
    waiting: list[str]
    newer: list[str]  # applied by newer code; this code must not use the schema
    changed: list[str]  # applied with a text that differs from this code's


def migrations_of(texts: Iterable[tuple[str, str]]) -> tuple[Migration, ...]:
    """Return the migrations in these (file name, text) pairs, in order."""
    found: list[Migration] = []
    for file, text in texts:
        name = file.removesuffix(".sql")
        checksum = hashlib.sha256(text.encode()).hexdigest()
        found.append(Migration(int(name[:4]), name, checksum, text))
    return tuple(sorted(found))


def compare_migrations(
    migrations: Sequence[Migration], rows: Iterable[Sequence[Any]]
) -> MigrationStatus:
    """Compare with the recorded rows of number, name and checksum."""
    recorded: dict[int, tuple[str, str]] = {
        number: (name, checksum) for number, name, checksum in rows
    }
    ours = {step.number: step for step in migrations}
    return MigrationStatus(
        applied=[name for number, (name, _) in recorded.items() if number in ours],
        waiting=[step.name for step in migrations if step.number not in recorded],
        newer=[name for number, (name, _) in recorded.items() if number not in ours],
        changed=[
            name
            for number, (name, checksum) in recorded.items()
            if number in ours and ours[number].checksum != checksum
        ],
    )

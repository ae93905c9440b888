"""What every refusal owes: a code, the value at fault, a cure, and nothing stored."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from durio import App, DurioError
from tests.unit.app.app_harness import records

GENERAL = {"durio", "operating"}  # codes that say nothing


@contextmanager
def declined(error: type[DurioError], *words: str) -> Iterator[None]:
    """What happens inside is refused with this error, a cure and these words."""
    with pytest.raises(error) as caught:
        yield
    told = caught.value
    assert told.code not in GENERAL
    assert told.cure
    text = str(told)
    assert f"[{told.code}]" in text
    for word in words:
        assert word in text, text


@asynccontextmanager
async def refused(
    app: App, error: type[DurioError], *words: str, stored: int = 0
) -> AsyncIterator[None]:
    """The same, and the store is as it was: no job, no key, no queue."""
    with declined(error, *words):
        yield
    assert len(await records(app)) == stored
    if not stored:
        assert await asked(app, "select count(*) from uniq") == [(0,)]
        assert await asked(app, "select count(*) from queue") == [(0,)]


async def asked(app: App, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Reach into the store behind everybody's back."""
    store: Any = await app.store()
    return await store.context.writer.write(lambda tx: tx.db.rows(sql, values))

"""Job ids as people type them: whole, or the first 8 digits or more."""

import re
from collections.abc import Sequence

from durio.app.app import App
from durio.app.cures import with_flags
from durio.client.namespaces import apps_in
from durio.client.result_waiters import not_found
from durio.model.errors import JobNotFound, UsageError
from durio.model.ids import DIGITS, id_text
from durio.model.job import STATE_BY_CODE, StoredJob
from durio.model.plan_record import plan_kind

DIGITS_MIN = 8
CANDIDATES_MAX = 5
HEX_SHAPE = re.compile(r"[0-9a-f]*", re.ASCII)
EXAMPLE = "0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55"


class InvalidJobId(UsageError):
    """The text is neither a job id nor the beginning of one."""

    code = "invalid_job_id"


class AmbiguousJobId(UsageError):
    """Several job ids begin with the text."""

    code = "ambiguous_job_id"


def id_digits(
    text: str, what: str = "job", error: type[UsageError] = InvalidJobId
) -> str:
    """Return the hex digits of an id, or of its beginning; raise the error."""
    digits = text.lower().replace("-", "")
    if HEX_SHAPE.fullmatch(digits) is None or not 0 < len(digits) <= DIGITS:
        raise error(
            f"{text[:60]!r} is not a {what} id",
            cure=f"An id looks like {EXAMPLE}.\nIts first {DIGITS_MIN} digits or more are enough, if no other id begins so.",
        )
    if len(digits) < DIGITS_MIN:
        raise error(
            f"{text!r} is too short for a {what} id",
            cure=f"Give the id, or at least its first {DIGITS_MIN} digits.",
        )
    return digits


async def find_id(app: App, text: str) -> bytes:
    """Return the id that the text is, or begins.

    Raise InvalidJobId, AmbiguousJobId, or JobNotFound if no id begins so. A whole id is
    not looked up.
    """
    digits = id_digits(text)
    if len(digits) == DIGITS:
        return bytes.fromhex(digits)
    first = bytes.fromhex(digits.ljust(DIGITS, "0"))
    last = bytes.fromhex(digits.ljust(DIGITS, "f"))
    store = await app.store()
    found = await store.ids_between(first, last, limit=CANDIDATES_MAX + 1)
    if not found:
        raise JobNotFound(
            f"no job id begins with {text!r}",
            cure=with_flags("See: durio jobs ls", app)
            + "\nJobs past their retention are gone.",
            id=text,
        )
    if len(found) > 1:
        raise ambiguous(text, found, await store.get(found[:CANDIDATES_MAX]))
    return found[0]


def ambiguous(
    text: str, found: Sequence[bytes], shown: Sequence[StoredJob]
) -> AmbiguousJobId:
    """Return the error for a beginning of several ids; it lists the newest of them."""
    number = f"{len(found)}" if len(found) <= CANDIDATES_MAX else "more than 5"
    lines = [
        f"{id_text(job.id)}  {STATE_BY_CODE[job.state].value:<9}  {job.task}"
        for job in shown
    ]
    return AmbiguousJobId(
        f"{number} job ids begin with {text!r}",
        cure="\n".join(["Give more digits. The newest:", *lines]),
        ids=[id_text(job_id) for job_id in found[:CANDIDATES_MAX]],
    )


async def job_by_id(app: App, text: str) -> StoredJob:
    """Return a stored job; raise what `find_id` raises."""
    job_id = await find_id(app, text)
    records = await (await app.store()).get([job_id])
    if not records:
        raise await not_a_job(app, job_id)
    return records[0]


async def not_a_job(app: App, job_id: bytes) -> JobNotFound:
    """Return the error for an id that no job has; the id may be that of a plan."""
    error, store = not_found(job_id), await app.store()
    for namespace in await apps_in(store):
        if await store.records(plan_kind(namespace), [id_text(job_id)]):
            see = with_flags(f"durio plans show {id_text(job_id)}", app)
            error.cure = f"A plan of App {namespace} has that id: {see}"
    return error


async def find_ids(
    app: App, texts: Sequence[str]
) -> tuple[dict[bytes, str], dict[str, JobNotFound]]:
    """Return the full id of each text, and the error of each text without one."""
    found: dict[bytes, str] = {}
    missing: dict[str, JobNotFound] = {}
    for text in dict.fromkeys(texts):
        try:
            found.setdefault(await find_id(app, text), text)
        except JobNotFound as error:
            missing[text] = error
    return found, missing

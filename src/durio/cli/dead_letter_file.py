"""Dead letters as JSON lines, complete enough to be imported into another store.

One letter per line. Arguments, options and errors are the stored JSON, byte for byte; bytes
that are damaged in the store and are not JSON are written as base64. An import reads the
file twice: first to check every line, then to restore. So a bad line leaves nothing
half-written.
"""

import base64
import binascii
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import msgspec

from durio.app.app import App
from durio.cli.filters import PAGE_MAX
from durio.client.bulk import STEP_JOBS
from durio.client.job_search import JobSearch, LookBounds, next_jobs
from durio.model.codec import decode
from durio.model.errors import DurioError, UsageError
from durio.model.failure import Failure
from durio.model.ids import id_bytes, id_text
from durio.model.job import DEAD, PRIORITY_MAX, StoredJob, utc_datetime
from durio.model.names import check_app, check_name, lane, namespace_of, queue_of
from durio.model.options import row_options
from durio.ports.control import AuditNote

LINE_BYTES_MAX = 16 * 1024 * 1024
KEY_BYTES_MAX = 64

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Reason = Annotated[str, msgspec.Meta(pattern=r"\A[a-z_]{1,64}\Z")]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class DeadLetterLine(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """One line; its field names are a contract, because files outlive versions."""

    durio: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1  # version of this format
    id: str
    namespace: str
    task: str
    queue: str
    priority: Annotated[int, msgspec.Meta(ge=0, le=PRIORITY_MAX)]
    reason: Reason | None
    payload: msgspec.Raw  # [args, kwargs]
    options: msgspec.Raw
    errors: msgspec.Raw  # the failed attempts, oldest first
    retried: Count
    losses: Count
    lost: Count
    snoozed: Count
    claim_no: Count
    created_at: Moment | None
    run_at: Moment | None
    started_at: Moment | None
    finished_at: Moment | None
    key: str | None  # idempotency key: hash in hexadecimal


_decoder = msgspec.json.Decoder(DeadLetterLine)
_errors = msgspec.json.Decoder(list[Failure])


class BadLetter(UsageError):
    """A line of the file is not a dead letter."""

    code = "bad_letter"


# --- export


def encode_line(job: StoredJob) -> bytes:
    """Return a dead letter as one line, without a line end."""
    return msgspec.json.encode(
        DeadLetterLine(
            id=id_text(job.id),
            namespace=namespace_of(job.lane),
            task=job.task,
            queue=queue_of(job.lane),
            priority=PRIORITY_MAX - job.rank,
            reason=job.reason,
            payload=stored_json(job.payload),
            options=stored_json(job.opts),
            errors=stored_json(job.errors),
            retried=job.retried,
            losses=job.losses,
            lost=job.lost,
            snoozed=job.snoozed,
            claim_no=job.claim_no,
            created_at=utc_datetime(job.created_at),
            run_at=utc_datetime(job.run_at),
            started_at=utc_datetime(job.started_at),
            finished_at=utc_datetime(job.finished_at),
            key=None if job.key is None else job.key.hex(),
        )
    )


def stored_json(stored: bytes | str | None) -> msgspec.Raw:
    """Return stored JSON unchanged; base64 if it is not JSON or not on one line."""
    if stored is None:
        return msgspec.Raw(b"null")
    raw = stored.encode() if isinstance(stored, str) else stored
    try:
        decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        is_json = False
    else:
        is_json = b"\n" not in raw and b"\r" not in raw
    return msgspec.Raw(raw if is_json else msgspec.json.encode({"base64": raw}))


# --- import


def read_dead_letters(
    stream: BinaryIO, now: float, bytes_max: int, namespace: str | None = None
) -> Iterator[StoredJob]:
    """Yield every letter of a file, checked; the first bad line raises with its number.

    `namespace` is the selected App: letters of other Apps are refused.
    """
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise bad_line(number, f"it is longer than {LINE_BYTES_MAX} bytes")
        if not line.strip():
            continue
        try:
            letter = _decoder.decode(line)
            record = job_of(letter, now, bytes_max)
        except DurioError as error:
            raise bad_line(number, error.what) from None
        except (ValueError, OverflowError, RecursionError) as error:
            raise bad_line(number, str(error)) from None
        if namespace not in (None, letter.namespace):
            raise wrong_app_line(number, letter.namespace, namespace)
        yield record


def wrong_app_line(number: int, namespace: str, named: str | None) -> BadLetter:
    return BadLetter(
        f"line {number}: a dead letter of App {namespace}, not of {named}",
        cure="Nothing was imported. Dead letters keep their App: name that App, or "
        "none.",
        line=number,
    )


def bad_line(number: int, why: str) -> BadLetter:
    return BadLetter(
        f"line {number}: {why}",
        cure="Nothing was imported. Give a file that `durio dead export` has written.",
        line=number,
    )


def job_of(letter: DeadLetterLine, now: float, bytes_max: int) -> StoredJob:
    """Return a letter as a record; raise ValueError or DurioError if it is not valid."""
    payload = required(stored_bytes(letter.payload), "payload")
    if len(payload) > bytes_max:
        raise ValueError(f"payload is {len(payload)} bytes, over {bytes_max}")
    opts, errors = stored_bytes(letter.options), stored_bytes(letter.errors)
    is_chunk = False
    if not is_base64(letter.options):
        opts, is_chunk = outside_plan(opts)
    if not is_base64(letter.payload):
        check_arguments(payload, is_chunk=is_chunk)
    if errors is not None and not is_base64(letter.errors):
        _errors.decode(errors)
    key = None if letter.key is None else bytes.fromhex(letter.key)
    if key is not None and not 0 < len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"key is not 1 to {KEY_BYTES_MAX} bytes")
    if letter.task.partition(".")[0] != letter.namespace:
        raise ValueError(f"task {letter.task} is not of app {letter.namespace}")
    finished_at = timestamp(letter.finished_at)
    return StoredJob(
        id=id_bytes(letter.id),
        lane=lane(check_app(letter.namespace), check_name("queue", letter.queue)),
        rank=PRIORITY_MAX - letter.priority,
        state=DEAD,
        task=check_name("task", letter.task),
        payload=payload,
        retried=letter.retried,
        losses=letter.losses,
        lost=letter.lost,
        snoozed=letter.snoozed,
        claim_no=letter.claim_no,
        worker=None,
        opts=opts,
        errors=errors,
        progress=None,
        cancel_asked=False,
        created_at=timestamp(letter.created_at) or now,
        run_at=timestamp(letter.run_at),
        started_at=timestamp(letter.started_at),
        finished_at=now if finished_at is None else finished_at,
        result=None,
        result_until=None,
        reason=letter.reason,
        key=key,
    )


def outside_plan(opts: bytes | None) -> tuple[bytes | None, bool]:
    """Return options without a place in a plan, and whether the job is a chunk.

    Its plan has gone on, or failed for good, or is in another store. Raises InvalidOption.
    """
    options = row_options(opts)
    if options.plan is not None:
        opts = msgspec.json.encode(msgspec.structs.replace(options, plan=None))
    return opts, options.is_chunk


def required(stored: bytes | None, name: str) -> bytes:
    if stored is None:
        raise ValueError(f"{name} is null")
    return stored


def stored_bytes(stored: msgspec.Raw) -> bytes | None:
    """Return the bytes that were stored; None for null."""
    if is_base64(stored):
        text = decode(bytes(stored))["base64"]
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError):
            raise ValueError("base64 is not base64") from None
    raw = bytes(stored)
    return None if raw == b"null" else raw


def is_base64(raw: msgspec.Raw) -> bool:
    """Whether `stored_json` wrote this value as base64."""
    value = decode(bytes(raw))
    return isinstance(value, dict) and list(value) == ["base64"]  # pyright: ignore[reportUnknownArgumentType]


def check_arguments(payload: bytes, *, is_chunk: bool = False) -> None:
    """Raise ValueError unless the payload is `[args, kwargs]`, or a list of such calls."""
    value: Any = decode(payload)
    calls: list[Any] = [value]
    if is_chunk and isinstance(value, list):
        calls = cast("list[Any]", value)
    for call in calls:
        match call:
            case [list(), dict()]:
                continue
            case _:
                raise ValueError("payload is not [args, kwargs]")


def timestamp(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


# --- files


@contextmanager
def open_output(output: str | None) -> Generator[BinaryIO]:
    """Yield standard output, or a new file that is removed on any error."""
    if output is None:
        yield sys.stdout.buffer
        return
    path = Path(output)
    try:
        stream = path.open("xb")
    except OSError as error:
        raise UsageError(
            f"{output} cannot be made: {error.strerror}",
            cure="Name a new file in a folder that you may write to.",
        ) from None
    try:
        with stream:
            yield stream
    except BaseException:
        path.unlink()
        raise


async def write_dead_letters(app: App, search: JobSearch, stream: BinaryIO) -> int:
    jobs = 0
    async for record in find_dead_letters(app, search):
        stream.write(encode_line(record) + b"\n")
        jobs += 1
    stream.flush()
    return jobs


async def find_dead_letters(app: App, search: JobSearch) -> AsyncIterator[StoredJob]:
    """Read page by page, so that memory use stays limited."""
    store, cursor = await app.store(), None
    while True:
        bounds = LookBounds(app.clock)
        jobs, cursor = await next_jobs(store, search, cursor, PAGE_MAX, bounds)
        for record in jobs:
            yield record
        if cursor is None:
            return


async def restore(app: App, read: Callable[[], Iterator[StoredJob]], by: str) -> int:
    """Write the records in batches; return how many were new."""
    store = await app.store()
    records, written = read(), 0
    while some := list(islice(records, STEP_JOBS)):
        written += await store.restore(some, AuditNote(who=by))
    return written


@contextmanager
def open_input(file: str) -> Generator[BinaryIO]:
    """Yield a file that can be read twice; standard input and pipes are copied first."""
    if file == "-":
        with temporary_copy(sys.stdin.buffer) as copy:
            yield copy
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}", cure="Name a file."
        ) from None
    with stream:
        if stream.seekable():
            yield stream
            return
        with temporary_copy(stream) as copy:
            yield copy


@contextmanager
def temporary_copy(stream: BinaryIO) -> Generator[BinaryIO]:
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy)
        yield copy

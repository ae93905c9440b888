"""HTTP answers in exceptions: the status, and how long `Retry-After` says to wait.

The libraries keep an answer in different places. This module looks for attributes, and
imports none of them:

- `error.response` with `status_code` (httpx, requests) or `status`, and `headers`;
- `error.response` as a dict with `ResponseMetadata` (botocore);
- the error itself with `status` (aiohttp) or `code` (urllib), and `headers`.

A number without headers is no HTTP status: other errors have a `status` or a `code` too.
"""

import importlib
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

NUMBER = re.compile(r"\s*(\d{1,10}(?:\.\d{1,9})?)\s*", re.ASCII)
DATE_CHARS_MAX = 100
STATUS_NAMES = ("status_code", "status", "code")
MISSING = object()


class HttpAnswer(NamedTuple):
    """The parts of an HTTP answer that decide about a retry."""

    status: int
    headers: Any
    aws_code: str = ""  # error code of an AWS service, such as `ThrottlingException`


def http_answer(error: BaseException) -> HttpAnswer | None:
    """Return the HTTP answer that an exception reports; None if it reports none."""
    response = attribute(error, "response")
    if isinstance(response, Mapping):
        return _aws_answer(cast("Mapping[str, Any]", response))
    for owner in (response, error):
        headers = attribute(owner, "headers")
        if headers is MISSING:
            continue
        for name in STATUS_NAMES:
            status = attribute(owner, name)
            if _is_status(status):
                return HttpAnswer(status, headers)
    return None


def _aws_answer(response: Mapping[str, Any]) -> HttpAnswer | None:
    metadata, error = response.get("ResponseMetadata"), response.get("Error")
    if not isinstance(metadata, Mapping) or not isinstance(error, Mapping):
        return None
    known = cast("Mapping[str, Any]", metadata)
    status = known.get("HTTPStatusCode")
    code = cast("Mapping[str, Any]", error).get("Code")
    if not _is_status(status):
        return None
    aws_code = code if isinstance(code, str) else ""
    return HttpAnswer(cast("int", status), known.get("HTTPHeaders"), aws_code)


def retry_after_seconds(headers: Any, now: float) -> float | None:
    """Return the seconds that a `Retry-After` header asks for; None without a valid one.

    It holds seconds or a date. A date is compared with the `Date` header, if there is one,
    because the clock of this machine may differ from the server's.
    """
    text = _header(headers, "Retry-After")
    if text is None:
        return None
    if (number := NUMBER.fullmatch(text)) is not None:
        return float(number[1])
    until = _date_seconds(text)
    if until is None:
        return None
    sent = _date_seconds(_header(headers, "Date") or "")
    return max(0.0, until - (now if sent is None else sent))


def _header(headers: Any, name: str) -> str | None:
    """Return a header as text; a plain dict may have its name in lower case."""
    get = attribute(headers, "get")
    if not callable(get):
        return None
    with suppress(Exception):  # a user's object may raise anything
        value = get(name) or get(name.lower())
        if isinstance(value, str | int):
            return str(value)
    return None


def _date_seconds(text: str) -> float | None:
    """Return an HTTP date as seconds since 1970; None if it is none."""
    if not text or len(text) > DATE_CHARS_MAX:
        return None
    # Few programs need the parser, and its import costs some milliseconds.
    parser = importlib.import_module("email.utils").parsedate_to_datetime
    try:
        moment: datetime = parser(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def attribute(owner: object, name: str) -> Any:
    """Return an attribute, or MISSING; it may be a property that raises."""
    try:
        return getattr(owner, name, MISSING)
    except Exception:
        return MISSING


def _is_status(value: object) -> bool:
    return type(value) is int and 100 <= value <= 599  # noqa: PLR2004 - of HTTP

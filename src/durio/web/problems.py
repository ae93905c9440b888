"""Every refusal as `application/problem+json`: what happened, its code, and what to do."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.responses import Response

from durio.model import errors

JSON_TYPE = "application/problem+json"
TITLES = {
    400: "Bad request",
    401: "Not logged in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Too large",
    415: "Wrong content type",
    421: "Wrong host",
    422: "Invalid request",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available",
    504: "No answer in time",
}
CODES = {401: "not_logged_in", 404: "not_found", 405: "method_not_allowed"}
# The status of each error; of its nearest parent in this list.
STATUS_OF: dict[type[errors.DurioError], int] = {
    errors.UsageError: 400,
    errors.UnknownTask: 404,
    errors.UnknownQueue: 404,
    errors.UnknownBreaker: 404,
    errors.InvalidArguments: 422,
    errors.NotSerializable: 422,
    errors.PayloadTooLarge: 413,
    errors.KeyConflict: 422,
    errors.WrongState: 409,
    errors.OperatingError: 500,
    errors.JobNotFound: 404,
    errors.PlanNotFound: 404,
    errors.BulkNotFound: 404,
    errors.ScheduleNotFound: 404,
    errors.ErrorGroupNotFound: 404,
    errors.ScheduleConflict: 409,
    errors.TooManySearches: 429,
    errors.WorkersTooOld: 409,
    errors.QueueFull: 503,
    errors.QueueClosed: 409,
    errors.StoreError: 503,
    errors.StoreReadOnly: 409,
    errors.LockTimeout: 503,
}
READ_ONLY = "read_only"  # whether a choice or the store makes it so
VALIDATION_ERRORS_SHOWN_MAX = 3
QUERY_FIELDS = ("position", "expected", "suggestion")


class Problem(BaseModel):
    """The body of every answer with a status of 400 or more."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    code: str  # stable, for programs
    detail: str  # what happened, for people
    cure: str  # what to do; may be empty


# For routes: the statuses that each may answer.
PROBLEM_ANSWERS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "content": {JSON_TYPE: {}}, "description": text}
    for status, text in (("4XX", "Refused"), ("5XX", "Failed"))
}


class Refusal(Exception):
    """Ends a request with a problem."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        cure: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.cure = cure
        self.headers = dict(headers or {})
        self.more = dict(more or {})  # other fields of the problem

    def response(self) -> Response:
        body = {
            "type": "about:blank",
            "title": TITLES.get(self.status, "Refused"),
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "cure": self.cure,
        }
        text = json.dumps({**self.more, **body})
        return Response(text, self.status, self.headers, JSON_TYPE)


def not_logged_in(*, with_basic: bool = False) -> Refusal:
    scheme = "Basic" if with_basic else "Bearer"
    return Refusal(
        401,
        "not_logged_in",
        "this request has no valid credential",
        "Log in, or send a token: Authorization: Bearer durio_...",
        headers={"WWW-Authenticate": f'{scheme} realm="durio"'},
    )


def internal_error() -> Refusal:
    return Refusal(
        500,
        "internal",
        "the dashboard could not answer; the reason is in its log",
        "Try again. If it happens again, please report it with the log line.",
    )


def refusal_of(error: errors.DurioError) -> Refusal:
    """Return the problem that an error of Durio is."""
    known = (STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)
    status: int = getattr(error, "http_status", next(known, 500))
    headers: dict[str, str] = {}
    more: dict[str, Any] = {}
    if isinstance(error, errors.QueueFull):
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if isinstance(error, errors.TooManySearches):
        headers["Retry-After"] = str(max(1, round(error.values["retry_after"])))
    if isinstance(error, errors.InvalidQuery):  # where the mistake is, for the page
        more |= {name: error.values.get(name) for name in QUERY_FIELDS}
    state = error.values.get("state")
    if state is not None:
        more["state"] = str(getattr(state, "value", state))
    code = READ_ONLY if isinstance(error, errors.StoreReadOnly) else error.code
    return Refusal(status, code, error.what, error.cure, headers=headers, more=more)


def handle_problems(api: FastAPI) -> None:
    """Answer every error of the routes with a problem."""

    @api.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> Response:
        return error.response()

    @api.exception_handler(errors.DurioError)
    async def durio_error(_: Request, error: errors.DurioError) -> Response:
        return refusal_of(error).response()

    @api.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        code = CODES.get(error.status_code, "refused")
        headers = {**(error.headers or {})}
        return Refusal(
            error.status_code, code, str(error.detail), headers=headers
        ).response()

    @api.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return Refusal(422, "invalid_request", validation_text(error)).response()

    @api.exception_handler(Exception)
    async def failed(_: Request, __: Exception) -> Response:
        return internal_error().response()  # the guard reports it

    _ = (refused, durio_error, http_error, invalid, failed)


def validation_text(error: RequestValidationError) -> str:
    """Return what is wrong with a request, without the values that it had."""
    found: list[Any] = list(error.errors())
    texts = [
        f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}"
        for each in found[:VALIDATION_ERRORS_SHOWN_MAX]
    ]
    more = len(found) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more > 0 else "")

"""The class of an error, for real exceptions of the libraries that users bring."""

import io
import socket
import sqlite3
import ssl
import urllib.error
from email.message import Message
from types import SimpleNamespace
from typing import Any

import aiohttp
import apsw
import asyncpg
import botocore.exceptions
import httpx
import msgspec
import psycopg
import psycopg.errors
import pydantic
import pytest
import redis.exceptions
import requests
import sqlalchemy.exc
import urllib3.exceptions
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from durio.errors import InvalidArguments
from durio.model.error_classes import OTHER, recognise

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT
LATER = "Sun, 06 Nov 1994 08:51:37 GMT"  # 120 s after it
REQUEST = httpx.Request("GET", "https://example.org")
POOL = urllib3.HTTPConnectionPool("example.org")

Headers = dict[str, str]


def of_httpx(status: int, headers: Headers) -> Exception:
    response = httpx.Response(status, headers=headers, request=REQUEST)
    with pytest.raises(httpx.HTTPStatusError) as caught:
        response.raise_for_status()
    return caught.value


def of_requests(status: int, headers: Headers) -> Exception:
    response = requests.Response()
    response.status_code, response.url = status, "https://example.org"
    response.headers.update(headers)
    with pytest.raises(requests.HTTPError) as caught:
        response.raise_for_status()
    return caught.value


def of_aiohttp(status: int, headers: Headers) -> Exception:
    url, given = URL("https://example.org"), CIMultiDictProxy(CIMultiDict(headers))
    request = aiohttp.RequestInfo(url, "GET", CIMultiDictProxy(CIMultiDict()), url)
    return aiohttp.ClientResponseError(request, (), status=status, headers=given)


def of_urllib(status: int, headers: Headers) -> Exception:
    message = Message()
    for name, value in headers.items():
        message[name] = value
    body = io.BytesIO()
    return urllib.error.HTTPError("https://example.org", status, "m", message, body)


def of_botocore(status: int, headers: Headers, code: str = "Whatever") -> Exception:
    # botocore lowers the names of headers.
    lower = {name.lower(): value for name, value in headers.items()}
    metadata: Any = {"HTTPStatusCode": status, "HTTPHeaders": lower}
    response: Any = {"Error": {"Code": code}, "ResponseMetadata": metadata}
    return botocore.exceptions.ClientError(response, "GetObject")


CLIENTS = pytest.mark.parametrize(
    "client",
    [of_httpx, of_requests, of_aiohttp, of_urllib, of_botocore],
    ids=lambda client: client.__name__,
)


@CLIENTS
@pytest.mark.proves("M72", "L8")
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((400, "permanent"), (401, "permanent"), (403, "permanent")),
        *((404, "permanent"), (409, "permanent"), (422, "permanent")),
        *((408, "transient"), (425, "transient"), (429, "transient")),
        *((500, "transient"), (502, "transient"), (503, "transient")),
        (504, "transient"),
    ],
)
def test_answers_of_http(client: Any, status: int, kind: str) -> None:
    found = recognise(client(status, {}), NOW)
    assert (found.kind, found.status) == (kind, status)
    assert found.why.startswith(f"HTTP {status}")


@CLIENTS
@pytest.mark.proves("M72")
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "2"}, 2),
        ({"Retry-After": " 1.5 "}, 1.5),
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": LATER}, 120),
        ({"Retry-After": "Sunday, 06-Nov-94 08:51:37 GMT"}, 120),
        ({"Retry-After": "Sun Nov  6 08:51:37 1994"}, 120),
        ({"Retry-After": "Sun, 06 Nov 1994 08:00:00 GMT"}, 0),
        # The clock of the server, when the answer says what it is.
        ({"Retry-After": LATER, "Date": "Sun, 06 Nov 1994 08:51:27 GMT"}, 10),
        ({"Retry-After": LATER, "Date": "yesterday"}, 120),
    ],
    ids=str,
)
def test_retry_after_in_seconds_and_as_a_date(
    client: Any, status: int, headers: Headers, seconds: float
) -> None:
    found = recognise(client(status, headers), NOW)
    assert (found.kind, found.wait_seconds) == ("retry_after", seconds)
    assert found.why.endswith("with Retry-After")


@pytest.mark.parametrize(
    "value",
    [
        *("", "soon", "-5", "1e9", "NaN", "²", "99999999999999", "x" * 1000),
        *("Sun, 99 Nov 1994 08:51:37 GMT", "Sun, 06 Nov 99999 08:51:37 GMT"),
    ],
)
def test_a_header_that_cannot_be_read_is_none(value: str) -> None:
    # Made by hand: httpx itself refuses some of these.
    error = aiohttp.ClientResponseError(None, (), status=429, headers={})  # type: ignore[arg-type]
    error.headers = {"Retry-After": value}  # type: ignore[assignment]
    assert recognise(error, NOW).kind == "transient"


def test_the_header_of_other_statuses_does_not_matter() -> None:
    assert recognise(of_httpx(500, {"Retry-After": "2"}), NOW).kind == "transient"
    assert recognise(of_httpx(404, {"Retry-After": "2"}), NOW).kind == "permanent"


def test_answers_that_are_no_failure_of_http() -> None:
    wrong_type = aiohttp.ContentTypeError(None, (), status=200, headers=CIMultiDict())  # type: ignore[arg-type]
    assert recognise(wrong_type, NOW).kind == "other"
    assert recognise(requests.HTTPError("no answer"), NOW) == OTHER
    error = botocore.exceptions.ClientError({"Error": {}}, "GetObject")
    assert recognise(error, NOW) == OTHER
    metadata: Any = {"Error": {}, "ResponseMetadata": {"HTTPStatusCode": "x"}}
    assert recognise(botocore.exceptions.ClientError(metadata, "Get"), NOW) == OTHER


def test_aws_throttles_with_400() -> None:
    throttled = recognise(of_botocore(400, {}, "ThrottlingException"), NOW)
    assert throttled.kind == "transient"
    assert throttled.why == "HTTP 400 ThrottlingException"
    assert recognise(of_botocore(400, {}, "NoSuchKey"), NOW).kind == "permanent"
    numbered = of_botocore(400, {}, 5)  # type: ignore[arg-type]
    assert recognise(numbered, NOW).why == "HTTP 400"


def invalid(model: type[pydantic.BaseModel]) -> pydantic.ValidationError:
    with pytest.raises(pydantic.ValidationError) as caught:
        model(shelf="x")
    return caught.value


class Model(pydantic.BaseModel):
    shelf: int


class ValidationError(Exception):
    """As in marshmallow, jsonschema, Django and many more."""


def of_sqlalchemy(
    original: BaseException, kind: type[Exception] = sqlalchemy.exc.OperationalError
) -> Exception:
    return kind("select 1", {}, original)  # type: ignore[call-arg]


def wrapped(times: int) -> Exception:
    error: Exception = asyncpg.DeadlockDetectedError("deadlock")
    for _ in range(times):
        error = of_sqlalchemy(error, sqlalchemy.exc.DBAPIError)
    return error


DNS = urllib3.exceptions.NameResolutionError("host", POOL, socket.gaierror())  # type: ignore[arg-type]


@pytest.mark.proves("M71", "M73", "M75", "M76", "L8")
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        # Python itself
        ("transient", ConnectionResetError()),
        ("transient", TimeoutError()),
        ("transient", TimeoutError("of asyncio, too")),
        ("transient", socket.gaierror(-2, "Name or service not known")),
        ("transient", urllib.error.URLError("refused")),
        ("transient", sqlite3.OperationalError("database is locked")),
        ("other", sqlite3.OperationalError("no such table: shelf")),
        ("other", sqlite3.OperationalError()),
        ("other", ssl.SSLCertVerificationError("expired")),
        ("other", ValueError("x")),
        ("other", TypeError("x")),
        ("other", FileNotFoundError("x")),
        # httpx
        ("transient", httpx.ConnectTimeout("x")),
        ("transient", httpx.ReadTimeout("x")),
        ("transient", httpx.ConnectError("x")),
        ("transient", httpx.RemoteProtocolError("x")),
        ("pool_exhausted", httpx.PoolTimeout("x")),
        ("permanent", httpx.UnsupportedProtocol("x")),
        ("permanent", httpx.InvalidURL("x")),
        ("other", httpx.TooManyRedirects("x")),
        # requests
        ("transient", requests.ConnectionError()),
        ("transient", requests.ConnectTimeout()),
        ("transient", requests.ReadTimeout()),
        ("transient", requests.exceptions.ChunkedEncodingError()),
        ("permanent", requests.exceptions.MissingSchema()),
        ("permanent", requests.exceptions.InvalidURL()),
        ("other", requests.TooManyRedirects()),
        # aiohttp
        ("transient", aiohttp.ClientConnectionError()),
        ("transient", aiohttp.ServerDisconnectedError()),
        ("transient", aiohttp.ServerTimeoutError()),
        ("transient", aiohttp.ClientPayloadError()),
        ("permanent", aiohttp.InvalidURL("x")),
        # urllib3
        ("transient", urllib3.exceptions.ConnectTimeoutError()),
        ("transient", urllib3.exceptions.ReadTimeoutError(POOL, "/", "x")),
        ("transient", urllib3.exceptions.ProtocolError("x")),
        ("transient", urllib3.exceptions.MaxRetryError(POOL, "/")),
        ("transient", DNS),
        ("pool_exhausted", urllib3.exceptions.EmptyPoolError(POOL, "x")),
        ("permanent", urllib3.exceptions.LocationParseError("x")),
        # asyncpg
        ("transient", asyncpg.DeadlockDetectedError("x")),
        ("transient", asyncpg.SerializationError("x")),
        ("transient", asyncpg.LockNotAvailableError("x")),
        ("transient", asyncpg.ConnectionDoesNotExistError("x")),
        ("transient", asyncpg.CannotConnectNowError("x")),
        ("transient", asyncpg.QueryCanceledError("x")),
        ("pool_exhausted", asyncpg.TooManyConnectionsError("x")),
        ("other", asyncpg.UniqueViolationError("x")),
        ("other", asyncpg.UndefinedTableError("x")),
        # psycopg
        ("transient", psycopg.OperationalError("connection refused")),
        ("transient", psycopg.errors.DeadlockDetected("x")),
        ("transient", psycopg.errors.SerializationFailure("x")),
        ("transient", psycopg.errors.AdminShutdown("x")),
        ("pool_exhausted", psycopg.errors.TooManyConnections("x")),
        ("other", psycopg.errors.UniqueViolation("x")),
        ("other", psycopg.errors.InvalidTextRepresentation("x")),
        # SQLAlchemy
        ("pool_exhausted", sqlalchemy.exc.TimeoutError("QueuePool limit")),
        ("transient", of_sqlalchemy(sqlite3.OperationalError("database is locked"))),
        ("transient", of_sqlalchemy(psycopg.errors.DeadlockDetected("x"))),
        ("pool_exhausted", of_sqlalchemy(asyncpg.TooManyConnectionsError("x"))),
        ("transient", wrapped(4)),
        ("other", wrapped(50)),
        ("other", of_sqlalchemy(sqlite3.OperationalError("no such table"))),
        (
            "other",
            of_sqlalchemy(sqlite3.IntegrityError("x"), sqlalchemy.exc.IntegrityError),
        ),
        # redis
        ("transient", redis.exceptions.ConnectionError()),
        ("transient", redis.exceptions.TimeoutError()),
        ("transient", redis.exceptions.BusyLoadingError()),
        ("transient", redis.exceptions.ReadOnlyError()),
        ("transient", redis.exceptions.TryAgainError()),
        ("pool_exhausted", redis.exceptions.MaxConnectionsError()),
        ("permanent", redis.exceptions.DataError()),
        ("other", redis.exceptions.ResponseError()),
        # botocore
        (
            "transient",
            botocore.exceptions.EndpointConnectionError(endpoint_url="x"),
        ),
        ("transient", botocore.exceptions.ReadTimeoutError(endpoint_url="x")),
        ("transient", botocore.exceptions.ConnectionClosedError(endpoint_url="x")),
        ("permanent", botocore.exceptions.ParamValidationError(report="x")),
        ("other", botocore.exceptions.NoCredentialsError()),
        # apsw
        ("transient", apsw.BusyError("x")),
        # invalid data, and a wrong call of Durio
        ("permanent", invalid(Model)),
        ("permanent", msgspec.ValidationError("x")),
        ("permanent", ValidationError("x")),
        ("permanent", InvalidArguments("x")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__qualname__,
)
def test_classes_of_libraries(kind: str, error: BaseException) -> None:
    found = recognise(error, NOW)
    assert found.kind == kind
    assert bool(found.why) == (kind != "other")


# --- what only looks like an answer, and what raises


class HttpLike(Exception):
    response: Any = None
    headers: Any


def test_a_number_without_headers_is_no_status() -> None:
    error = HttpLike()
    error.status = error.code = 404  # type: ignore[attr-defined]
    assert recognise(error, NOW) == OTHER
    error.response = SimpleNamespace(status_code=404)
    assert recognise(error, NOW) == OTHER
    error.response = SimpleNamespace(status_code=404, headers={})
    assert recognise(error, NOW).kind == "permanent"
    for status in (True, "404", 4040, None):
        error.response = SimpleNamespace(status_code=status, headers={})
        assert recognise(error, NOW) == OTHER


class Hostile(Exception):
    @property
    def response(self) -> Any:
        raise RuntimeError("do not look")

    @property
    def sqlstate(self) -> Any:
        raise SystemError("nor here")


class HostileHeaders:
    def get(self, name: str) -> str:
        raise KeyError(name)


def test_attributes_that_raise_are_absent() -> None:
    assert recognise(Hostile(), NOW) == OTHER
    error = HttpLike()
    for headers in (HostileHeaders(), None, {"Retry-After": b"2"}, "Retry-After: 2"):
        error.response = SimpleNamespace(status_code=429, headers=headers)
        assert recognise(error, NOW).kind == "transient"
    error.response = SimpleNamespace(status_code=429, headers={"Retry-After": 2})
    assert recognise(error, NOW).wait_seconds == 2


def test_an_error_of_psycopg2_has_its_state_elsewhere() -> None:
    error = HttpLike()
    error.pgcode = "40P01"  # type: ignore[attr-defined]
    assert recognise(error, NOW).kind == "transient"
    error.pgcode = "short"[:3]  # type: ignore[attr-defined]
    assert recognise(error, NOW) == OTHER

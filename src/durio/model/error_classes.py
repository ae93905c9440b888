"""Classes of errors: which errors are temporary, and which come again at each try.

`recognise` looks at an exception and returns its class. Libraries are known by the names of
their exceptions and by the attributes that these have; none is imported. An error that is
in no table is of the class `other`, and the retry policy of the task decides about it.
"""

from typing import Any, Literal, NamedTuple, get_args

from durio.model.errors import KeyConflict, UsageError
from durio.model.http_errors import (
    MISSING,
    HttpAnswer,
    attribute,
    http_answer,
    retry_after_seconds,
)

ErrorClass = Literal[
    "transient",  # network, timeouts, locks of a database, most answers of 5xx
    "retry_after",  # HTTP 429 or 503 whose Retry-After header says when to come back
    "pool_exhausted",  # no connection of a pool, or of a database server, was free
    "permanent",  # other answers of 4xx, invalid data, a wrong call of Durio
    "other",  # all others
]
ERROR_CLASSES: tuple[ErrorClass, ...] = get_args(ErrorClass)

# Exceptions as `package.Class`: the package is the first part of the module's name.
POOL_EXHAUSTED = frozenset(
    {
        *("httpx.PoolTimeout", "httpcore.PoolTimeout"),
        *("urllib3.EmptyPoolError", "urllib3.FullPoolError"),
        *("sqlalchemy.TimeoutError", "redis.MaxConnectionsError"),
        *("psycopg_pool.PoolTimeout", "psycopg_pool.TooManyRequests"),
        "psycopg2.PoolError",
    }
)
INVALID_DATA = frozenset(
    {
        # Beside all classes that are named ValidationError: pydantic, msgspec, jsonschema,
        # marshmallow, Django and others.
        *("jsonschema.SchemaError", "voluptuous.Invalid", "cattrs.BaseValidationError"),
        *("botocore.ParamValidationError", "redis.DataError"),
    }
)
INVALID_URL = frozenset(
    {
        *("httpx.InvalidURL", "httpx.UnsupportedProtocol", "aiohttp.InvalidURL"),
        *("requests.InvalidURL", "requests.MissingSchema", "requests.InvalidSchema"),
        "urllib3.LocationValueError",
    }
)
NETWORK = frozenset(
    {
        *("builtins.ConnectionError", "builtins.TimeoutError", "socket.gaierror"),
        *("httpx.TransportError", "httpcore.NetworkError", "httpcore.TimeoutException"),
        *("requests.ConnectionError", "requests.Timeout", "requests.RetryError"),
        "requests.ChunkedEncodingError",
        *("aiohttp.ClientConnectionError", "aiohttp.ClientPayloadError"),
        *(
            "urllib3.TimeoutError",
            "urllib3.NewConnectionError",
            "urllib3.MaxRetryError",
        ),
        *("urllib3.ProtocolError", "urllib3.ProxyError", "urllib3.ClosedPoolError"),
        *("urllib.URLError", "http.IncompleteRead"),
        *("redis.ConnectionError", "redis.TimeoutError", "botocore.HTTPClientError"),
        *("botocore.ConnectionError", "psycopg.OperationalError"),
        "psycopg2.OperationalError",
    }
)
DATABASE_BUSY = frozenset(
    {
        *("apsw.BusyError", "apsw.LockedError", "redis.BusyLoadingError"),
        *("redis.TryAgainError", "redis.ClusterDownError", "redis.ReadOnlyError"),
        "redis.MasterDownError",
    }
)
BY_NAME: dict[str, tuple[ErrorClass, str]] = {
    **dict.fromkeys(POOL_EXHAUSTED, ("pool_exhausted", "connection pool exhausted")),
    **dict.fromkeys(INVALID_DATA, ("permanent", "invalid data")),
    **dict.fromkeys(INVALID_URL, ("permanent", "invalid URL")),
    **dict.fromkeys(NETWORK, ("transient", "network")),
    **dict.fromkeys(DATABASE_BUSY, ("transient", "database busy")),
}

CLIENT_ERROR, SERVER_ERROR = 400, 500  # the first status of each
TRANSIENT_STATUSES = frozenset({408, 425, 429})
RETRY_AFTER_STATUSES = frozenset({429, 503})
# Services of AWS answer 400 to these, too.
AWS_TRANSIENT = frozenset(
    {
        *("Throttling", "ThrottlingException", "ThrottledException"),
        *("RequestThrottled", "RequestThrottledException", "TooManyRequestsException"),
        *("ProvisionedThroughputExceededException", "TransactionInProgressException"),
        *("RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException"),
        *("SlowDown", "PriorRequestNotComplete", "EC2ThrottledException"),
        *("RequestTimeout", "RequestTimeoutException", "InternalError"),
    }
)
# SQLSTATE of a database, whole or its beginning.
TOO_MANY_CONNECTIONS = "53300"
TRANSIENT_STATES = (
    *("08", "53", "57P", "58"),  # connection; resources; shutdown; system
    *("40001", "40P01", "55P03"),  # serialization failure; deadlock; lock not available
    *("57014", "25006"),  # statement timeout; a server that became a read-only standby
)
SQLITE_LOCKS = ("is locked", "is busy")
ORIGINALS_MAX = 5  # wrapped errors that are looked at, one inside the other


class RecognisedError(NamedTuple):
    """The class of an error, and why, for people."""

    kind: ErrorClass
    why: str = ""  # such as `HTTP 404`; empty for the class `other`
    status: int | None = None  # of HTTP
    wait_seconds: float = 0.0  # of the class `retry_after`


OTHER = RecognisedError("other")


def recognise(error: BaseException, now: float) -> RecognisedError:
    """Return the class of an error: by HTTP answer, SQLSTATE, names, wrapped error."""
    if (answer := http_answer(error)) is not None:
        return _by_answer(answer, now)
    if isinstance(error, KeyConflict):
        return RecognisedError("transient", "the key belongs to another job, for now")
    if isinstance(error, UsageError):
        # A wrong call of Durio fails in the same way again.
        return RecognisedError("permanent", f"a wrong call of Durio ({error.code})")
    for _ in range(ORIGINALS_MAX):
        found = _by_state(error) or _by_name(error)
        if found is not None:
            return found
        # SQLAlchemy keeps the error of the driver.
        original = attribute(error, "orig")
        if not isinstance(original, BaseException):
            break
        error = original
    return OTHER


def _by_answer(answer: HttpAnswer, now: float) -> RecognisedError:
    status = answer.status
    why = f"HTTP {status} {answer.aws_code}".rstrip()
    if status in RETRY_AFTER_STATUSES:
        wait_seconds = retry_after_seconds(answer.headers, now)
        if wait_seconds is not None:
            why = f"{why} with Retry-After"
            return RecognisedError("retry_after", why, status, wait_seconds)
    if status < CLIENT_ERROR:
        return RecognisedError("other", "", status)
    is_transient = (
        status >= SERVER_ERROR
        or status in TRANSIENT_STATUSES
        or answer.aws_code in AWS_TRANSIENT
    )
    return RecognisedError("transient" if is_transient else "permanent", why, status)


def _by_state(error: BaseException) -> RecognisedError | None:
    """Return the class by SQLSTATE; None without one."""
    state = attribute(error, "sqlstate")
    if state is MISSING:
        state = attribute(error, "pgcode")  # psycopg2
    if not isinstance(state, str) or len(state) != len(TOO_MANY_CONNECTIONS):
        return None
    if state == TOO_MANY_CONNECTIONS:
        why = "the database has too many connections"
        return RecognisedError("pool_exhausted", f"{why} (SQLSTATE {state})")
    if state.startswith(TRANSIENT_STATES):
        why = f"database unavailable or busy (SQLSTATE {state})"
        return RecognisedError("transient", why)
    return OTHER


def _by_name(error: BaseException) -> RecognisedError | None:
    """Return the class by the names of the error's class and its bases, nearest first."""
    for kind in type(error).__mro__:
        name = short_name(kind)
        if kind.__name__ == "ValidationError":
            return RecognisedError("permanent", f"invalid data ({shown_name(error)})")
        if name in BY_NAME:
            error_class, why = BY_NAME[name]
            return RecognisedError(error_class, f"{why} ({shown_name(error)})")
        if name == "sqlite3.OperationalError" and _is_locked(error):
            return RecognisedError("transient", "database busy (SQLite)")
    return None


def _is_locked(error: BaseException) -> bool:
    text: Any = error.args[0] if error.args else ""
    return isinstance(text, str) and any(lock in text for lock in SQLITE_LOCKS)


def short_name(kind: type) -> str:
    """Return a class as `package.Class`, such as `httpx.ConnectTimeout`."""
    return f"{str(kind.__module__).partition('.')[0]}.{kind.__name__}"


def shown_name(error: BaseException) -> str:
    """Return the class of an error for people: `KeyError`, `httpx.ConnectTimeout`."""
    return short_name(type(error)).removeprefix("builtins.")

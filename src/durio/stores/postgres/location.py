"""Parse `postgresql://user:password@host:5432/database?schema=durio&driver=asyncpg`.

Durio's own options are removed. The others are libpq's and are passed to the driver.
"""

import re
from urllib.parse import (
    SplitResult,
    parse_qsl,
    quote,
    unquote,
    urlencode,
    urlsplit,
)

from durio.model.errors import InvalidURL
from durio.model.names import did_you_mean
from durio.stores.postgres.driver import PostgresLocation

CHOICES = {
    "driver": ("asyncpg", "psycopg"),
    "notify": ("on", "off"),
    "prepared": ("on", "off"),
    "split": ("on", "off"),
}
SECONDS = ("connect_timeout", "call_timeout")
OPTIONS = ("schema", *CHOICES, *SECONDS)
SECONDS_MAX = 600.0
# Parameters of libpq that both drivers know.
LIBPQ_PARAMETERS = frozenset(
    {"host", "port", "dbname", "user", "password", "passfile", "sslmode", "sslcert"}
    | {"sslkey", "sslrootcert", "sslcrl", "sslnegotiation", "sslpassword", "krbsrvname"}
    | {"ssl_min_protocol_version", "ssl_max_protocol_version", "target_session_attrs"}
    | {"application_name", "options", "service"}
)
# Parameters of libpq that only psycopg knows.
PSYCOPG_PARAMETERS = frozenset(
    {"hostaddr", "keepalives", "keepalives_idle", "keepalives_interval"}
    | {"keepalives_count", "tcp_user_timeout", "gssencmode", "channel_binding"}
    | {"require_auth", "load_balance_hosts", "sslcompression", "sslsni", "sslcertmode"}
    | {"gsslib", "gssdelegation", "client_encoding", "fallback_application_name"}
)
URL_CURE = (
    "Use postgresql://user:password@host:5432/database; quote special characters of a "
    "password, as in %40 for @, %2F for / and %23 for #."
)
# Only names that need no quotes, because people also run such SQL by hand.
SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")


def location_from_url(url: str) -> PostgresLocation:
    """Parse and check a URL, without connecting."""
    parts = split_url(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {name: given.pop(name) for name in OPTIONS if name in given}
    driver = choice_of(parts, ours, "driver") or "asyncpg"
    for name in given:
        check_parameter(parts, name, driver)
    prepared = choice_of(parts, ours, "prepared")
    return PostgresLocation(
        dsn=dsn_of(parts, given),
        shown=display_url(parts, given),
        schema=schema_of(parts, ours.get("schema", "durio")),
        driver=driver,
        notify=choice_of(parts, ours, "notify") != "off",
        is_split=choice_of(parts, ours, "split") == "on",
        prepared=None if prepared is None else prepared == "on",
        connect_seconds=seconds_of(parts, ours, "connect_timeout", 10.0),
        call_seconds=seconds_of(parts, ours, "call_timeout", 30.0),
        settings={"application_name": given.get("application_name", "durio")},
    )


def split_url(url: str) -> SplitResult:
    """Split the URL; errors do not show it, because it may contain a password."""
    scheme, colon, rest = url.partition("://")
    if not colon or scheme.lower() not in ("postgresql", "postgres"):
        raise InvalidURL("this is not the URL of a PostgreSQL store", cure=URL_CURE)
    try:
        parts = urlsplit(f"postgresql://{rest}")
        check_ports(parts)
    except ValueError as error:
        raise InvalidURL(
            "the URL of the PostgreSQL store cannot be read: its host or port is wrong",
            cure=URL_CURE,
        ) from error
    if parts.fragment:
        raise InvalidURL("the URL of the PostgreSQL store has a #", cure=URL_CURE)
    return parts


def check_ports(parts: SplitResult) -> None:
    for host in hosts_of(parts).split(","):
        _, colon, port = host.rpartition("]")[2].rpartition(":")
        if colon and not 0 < int(port) < 1 << 16:
            raise ValueError(port)


def hosts_of(parts: SplitResult) -> str:
    """Return the hosts and ports between user and database."""
    return parts.netloc.rpartition("@")[2]


def user_of(parts: SplitResult) -> tuple[str, str]:
    """Return user and password; a password may contain any character, even an @."""
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    return unquote(user), unquote(password)


def dsn_of(parts: SplitResult, given: dict[str, str]) -> str:
    """Return the URL for the driver, quoted where needed."""
    user, password = user_of(parts)
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    rest = {name: value for name, value in given.items() if name != "application_name"}
    query = f"?{urlencode(rest, quote_via=quote)}" if rest else ""
    return f"postgresql://{login}{'@' if login else ''}{hosts_of(parts)}{parts.path}{query}"


def display_url(parts: SplitResult, given: dict[str, str]) -> str:
    """Return the URL as people see it, without the password."""
    user, _ = user_of(parts)
    host = hosts_of(parts) or given.get("host", "")
    return f"postgresql://{user}{'@' if user else ''}{host}{parts.path}"


def check_parameter(parts: SplitResult, name: str, driver: str) -> None:
    """Refuse an unknown parameter before connecting."""
    if name in LIBPQ_PARAMETERS or (name in PSYCOPG_PARAMETERS and driver == "psycopg"):
        return
    if name in PSYCOPG_PARAMETERS:
        raise InvalidURL(
            f"{display_url(parts, {})}: asyncpg does not know the parameter {name!r}",
            cure="Leave it out, or add driver=psycopg.",
        )
    known = (*OPTIONS, *sorted(LIBPQ_PARAMETERS))
    raise InvalidURL(
        f"{display_url(parts, {})}: there is no option {name!r}",
        cure=f"Options: {', '.join(OPTIONS)}, and those of libpq."
        f"{did_you_mean(name, known)}",
    )


def choice_of(parts: SplitResult, ours: dict[str, str], name: str) -> str | None:
    value = ours.get(name)
    if value is not None and value not in CHOICES[name]:
        raise InvalidURL(
            f"{display_url(parts, {})}: {name} cannot be {value!r}",
            cure=f"Use {' or '.join(CHOICES[name])}.",
        )
    return value


def schema_of(parts: SplitResult, name: str) -> str:
    if not SCHEMA.fullmatch(name):
        raise InvalidURL(
            f"{display_url(parts, {})}: {name!r} cannot be the name of the schema",
            cure="Use small letters, digits and _, at most 63, not beginning with pg_.",
        )
    return name


def seconds_of(
    parts: SplitResult, ours: dict[str, str], name: str, default: float
) -> float:
    text = ours.get(name, str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= SECONDS_MAX:
        raise InvalidURL(
            f"{display_url(parts, {})}: {name} cannot be {text!r}",
            cure=f"Give seconds, more than 0 and at most {SECONDS_MAX:g}.",
        )
    return seconds

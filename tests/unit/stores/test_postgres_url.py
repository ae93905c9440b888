"""What a PostgreSQL URL may say, and what is told of one that says something else."""

import pytest

from durio.errors import InvalidURL
from durio.stores.postgres.location import location_from_url


def test_everything_has_a_default() -> None:
    place = location_from_url("postgresql://ann@db.example/shop")
    assert place.dsn == "postgresql://ann@db.example/shop"
    assert (place.schema, place.driver, place.notify) == ("durio", "asyncpg", True)
    assert (place.prepared, place.is_split) == (None, False)
    assert place.settings == {"application_name": "durio"}


def test_our_options_are_ours_and_the_rest_is_the_drivers() -> None:
    place = location_from_url(
        "postgres://ann:pw@db:6432/shop?schema=jobs&driver=psycopg&notify=off&split=on"
        "&prepared=off&connect_timeout=3&call_timeout=7.5&sslmode=require&port=1"
        "&application_name=till&keepalives_idle=30"
    )
    assert place.schema == "jobs"
    assert place.driver == "psycopg"
    assert (place.notify, place.prepared, place.is_split) == (False, False, True)
    assert (place.connect_seconds, place.call_seconds) == (3.0, 7.5)
    assert place.settings == {"application_name": "till"}
    assert place.dsn == (
        "postgresql://ann:pw@db:6432/shop?sslmode=require&port=1&keepalives_idle=30"
    )


def test_a_socket_s_folder_is_a_parameter() -> None:
    place = location_from_url("postgresql:///shop?host=/run/pg&port=5433")
    assert place.dsn == "postgresql:///shop?host=%2Frun%2Fpg&port=5433"
    assert place.shown == "postgresql:///run/pg/shop"


@pytest.mark.parametrize("hosts", ["a:1,b:2", "[::1]:5432", "[::1]", "a,b", ""])
def test_several_hosts_and_addresses(hosts: str) -> None:
    assert (
        location_from_url(f"postgresql://{hosts}/shop").dsn
        == f"postgresql://{hosts}/shop"
    )


@pytest.mark.parametrize(
    ("written", "quoted"), [("p@ss", "p%40ss"), ("a%2Fb", "a%2Fb"), ("p:q", "p%3Aq")]
)
def test_a_password_may_hold_anything_and_is_never_shown(
    written: str, quoted: str
) -> None:
    place = location_from_url(f"postgresql://ann:{written}@db/shop")
    assert place.dsn == f"postgresql://ann:{quoted}@db/shop"
    assert place.shown == "postgresql://ann@db/shop"


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("db/shop?driver=pg8000", "driver cannot be 'pg8000'"),
        ("db/shop?notify=maybe", "on or off"),
        ("db/shop?schema=Jobs", "small letters"),
        ("db/shop?schema=pg_jobs", "pg_"),
        ("db/shop?schema=a;b", "cannot be the name"),
        ("db/shop?schema=", "cannot be the name"),
        (f"db/shop?schema={'a' * 64}", "at most 63"),
        ("db/shop?shema=jobs", "Did you mean 'schema'?"),
        ("db/shop?sslmod=require", "Did you mean 'sslmode'?"),
        ("db/shop?keepalives=1", "driver=psycopg"),
        ("db/shop?call_timeout=soon", "Give seconds"),
        ("db/shop?call_timeout=0", "more than 0"),
        ("db/shop?connect_timeout=inf", "at most 600"),
        ("db/shop?connect_timeout=nan", "more than 0"),
        ("db:port/shop", "host or port"),
        ("db:70000/shop", "host or port"),
        ("ann:pw#d@db/shop", "%23"),
    ],
)
def test_a_url_with_a_mistake(rest: str, words: str) -> None:
    with pytest.raises(InvalidURL) as told:
        location_from_url(f"postgresql://{rest}")
    assert words in str(told.value)
    assert "pw" not in str(told.value)


@pytest.mark.parametrize("url", ["postgresql:/db", "postgresql", "mysql://db/shop"])
def test_another_kind_of_url(url: str) -> None:
    with pytest.raises(InvalidURL, match="not the URL of a PostgreSQL store"):
        location_from_url(url)

"""SQL files: names, numbered parameters, parts, and mistakes that stop the import."""

import sys
from pathlib import Path

import pytest

from durio.stores.statement_files import column_list, read_statements


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "some_store"
    (folder / "sql").mkdir(parents=True)
    (folder / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_store", raising=False)
    return folder / "sql"


def read(package: Path, text: str, placeholder: str = "$") -> dict[str, str]:
    (package / "keys.sql").write_text(text, encoding="utf-8")
    return read_statements("some_store", placeholder)


def test_parameters_are_numbered_in_the_declared_order(package: Path) -> None:
    text = """-- Why this file is here.
-- name: free_key(key, job_id)
-- A comment of its own.
delete from uniq where id = :job_id and key = :key::bytea

-- name: count
select count(*) from uniq
"""
    assert read(package, text) == {
        "free_key": "delete from uniq where id = $2 and key = $1::bytea",
        "count": "select count(*) from uniq",
    }
    assert read(package, text, "?")["free_key"].endswith("key = ?1::bytea")


def test_a_part_has_the_parameters_of_its_statement(package: Path) -> None:
    text = "-- part: due\nrun_at <= :now\n-- name: look(now)\nselect 1 where {due}\n"
    assert read(package, text) == {"look": "select 1 where run_at <= $1"}


def test_a_store_may_give_parts(package: Path) -> None:
    parts = {"claim": column_list(["id", "key", "rank"])}
    text = "-- name: look\nselect {claim} from job\n"
    (package / "keys.sql").write_text(text, encoding="utf-8")
    found = read_statements("some_store", "$", parts)
    assert found == {"look": "select id, ukey, rank from job"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-- name: a\nselect :b\n", "not declared"),
        ("-- name: a(b)\nselect 1\n", "not used"),
        ("-- name: a\nselect 1\n-- name: a\nselect 2\n", "two statements"),
    ],
)
def test_a_mistake_is_named(package: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read(package, text)

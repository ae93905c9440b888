"""Pages across tables: merged by id, complete as far as they go, and cursors of ours."""

import pytest

from durio.model.errors import InvalidOption
from durio.stores.postgres.browse import (
    NEWEST,
    SourcePage,
    before_cursor,
    jobs_in_order,
    merge_pages,
    stored_job_of,
)
from durio.stores.postgres.bulk import PostgresBulkMark, bulk_mark_from_text
from durio.stores.postgres.control import error_list


def ids(*numbers: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in numbers]


def one(number: int) -> bytes:
    return ids(number)[0]


def test_the_newest_of_all_tables_come_first() -> None:
    looks = [
        SourcePage(ids(9, 4), None),
        SourcePage(ids(8, 7, 1), None),
        SourcePage([], None),
    ]
    assert merge_pages(looks, 9) == (ids(9, 8, 7, 4, 1), None)
    assert merge_pages(looks, 5) == (ids(9, 8, 7, 4, 1), None)
    assert merge_pages(looks, 2) == (ids(9, 8), one(8))


def test_a_page_ends_where_some_table_was_not_looked_at() -> None:
    """The second table was looked at down to 6 only: it may have a 5."""
    looks = [SourcePage(ids(9, 4), None), SourcePage(ids(8), one(6))]
    assert merge_pages(looks, 5) == (ids(9, 8), one(6))


def test_an_empty_page_may_say_where_to_go_on() -> None:
    assert merge_pages([SourcePage([], one(6)), SourcePage([], one(3))], 5) == (
        [],
        one(6),
    )
    assert merge_pages([SourcePage([], None)], 5) == ([], None)
    assert merge_pages([], 5) == ([], None)


def test_a_page_that_is_just_full_goes_on_behind_its_last_job() -> None:
    looks = [SourcePage(ids(9, 8, 7), one(7)), SourcePage(ids(6, 5), None)]
    assert merge_pages(looks, 2) == (ids(9, 8), one(8))
    assert merge_pages(looks, 3) == (ids(9, 8, 7), one(7))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pages_miss_nothing_and_repeat_nothing(size: int) -> None:
    """Three tables, each looked at a few rows at a time."""
    tables = [ids(*range(30, 0, -3)), ids(29, 28, 11, 10), ids(*range(26, 1, -6))]
    seen: list[bytes] = []
    before: bytes | None = NEWEST
    while before is not None:
        looks: list[SourcePage] = []
        for table in tables:
            below = [job for job in table if job < before]
            some = below[: size + 1]
            looks.append(SourcePage(some, some[-1] if len(below) > len(some) else None))
        shown, before = merge_pages(looks, size)
        assert len(shown) <= size
        seen += shown
    assert seen == sorted({job for table in tables for job in table}, reverse=True)


def test_a_cursor_leads_back_to_where_it_was_given() -> None:
    assert before_cursor(None) == NEWEST
    assert before_cursor(one(77).hex()) == one(77)


@pytest.mark.parametrize(
    "cursor", ["", "7", "no cursor", "-1", "9" * 40, "AB" * 16, " " * 32, "0g" * 16]
)
def test_a_cursor_of_somebody_else_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidOption, match="is not a cursor"):
        before_cursor(cursor)


def test_a_mark_is_read_as_it_was_written() -> None:
    mark = PostgresBulkMark(one(5), 1_800_000_000.25, 7)
    assert bulk_mark_from_text(str(mark)) == mark


@pytest.mark.parametrize(
    "text", ["", "1:2:3", "00:1.0:2", f"{'0' * 32}:x:2", f"{'0' * 32}:1.0:-1"]
)
def test_a_mark_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="is not a mark"):
        bulk_mark_from_text(text)


ROW = (one(1), "shop:default", 4, 5, "shop.pay", b"[]", 0, 0, 0, 0, 1, None, None)
ROW += ([b'{"type":"A"}', b'{"type":"B"}'], None, False, 1.0, None, None, 2.0)
ROW += (None, None, "permanent", None)


def test_errors_are_one_list_and_come_apart_again() -> None:
    record = stored_job_of(ROW)
    assert record.errors == b'[{"type":"A"},{"type":"B"}]'
    assert error_list(record.errors) == ROW[13]
    assert error_list(None) is error_list(b"[]") is None
    assert error_list(b"{damaged") == [b"{damaged"]


def test_records_come_in_the_order_asked() -> None:
    rows = [(one(n), *ROW[1:]) for n in (1, 2, 3)]
    records = jobs_in_order(ids(3, 9, 1), rows)
    assert [record.id for record in records] == ids(3, 1)

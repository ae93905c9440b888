"""Commands take the first digits of an id; what is not clear is a usage error."""

import asyncio
from collections.abc import Callable

import pytest

from durio import App
from durio.cli.job_ids import InvalidJobId, ambiguous, id_digits
from durio.model.ids import id_bytes, id_text
from tests.unit.cli.terminal import Terminal

PLACE = ("--app", "shop")
Ended = Callable[..., str]
COMMON = "0198c2f47a31"


@pytest.fixture
def alike(shop: Terminal) -> list[str]:
    """Ids of seven jobs that begin alike, oldest first."""
    ids = [bytes.fromhex(COMMON + f"{number:020x}") for number in range(7)]

    async def enqueue() -> None:
        app = App(f"sqlite:///{shop.folder / 'jobs.db'}", name="shop")
        app.clock.new_id = iter(ids).__next__  # type: ignore[method-assign]

        @app.task(name="resize")
        async def resize(path: str) -> None: ...

        async with app:
            for number in range(7):
                await resize.enqueue(str(number))

    asyncio.run(enqueue())
    return [id_text(each) for each in ids]


def test_unique_beginning_is_enough(shop: Terminal, ended: Ended) -> None:
    job = ended("refuse")
    for text in (job[:8], job[:8].upper(), job[:13], job[:-1], job.replace("-", "")):
        assert shop.json("jobs", "show", text, *PLACE)["id"] == job
        assert shop.json("dead", "show", text, *PLACE)["id"] == job
    retried = shop.ok("jobs", "retry", job[:8], *PLACE)
    assert retried == f"{job}  dead -> ready\n"
    cancelled = shop.ok("jobs", "cancel", job[:8], *PLACE)
    assert cancelled == f"{job}  ready -> cancelled\n"


def test_dead_letters_by_their_beginning(shop: Terminal, ended: Ended) -> None:
    job = ended("refuse")
    edited = ("dead", "retry", job[:8], "--args", '["yes"]')
    assert shop.ok(*edited, *PLACE) == f"{job}  dead -> ready\n"
    shop.ok("worker", "shop:app", "--burst", "--log-level", "ERROR")
    discarded = shop.ok("dead", "discard", job[:8], "--yes", *PLACE)
    assert discarded == f"{job}  dead -> gone\n"


def test_same_job_twice_is_one(shop: Terminal, ended: Ended) -> None:
    job = ended("refuse")
    (row,) = shop.json("jobs", "retry", job[:9], job, *PLACE)["jobs"]
    assert (row["id"], row["ok"]) == (job, True)


def test_ambiguous_lists_five(shop: Terminal, alike: list[str]) -> None:
    result = shop.run("jobs", "show", alike[0][:8], *PLACE)
    assert result.exit_code == 2
    head, advice, *lines = result.stderr.splitlines()
    assert head == "error: more than 5 job ids begin with '0198c2f4' [ambiguous_job_id]"
    assert advice == "  Give more digits. The newest:"
    newest = reversed(alike[2:])
    assert lines == [f"  {each}  ready      shop.resize" for each in newest]


def test_ambiguous_changes_nothing(shop: Terminal, alike: list[str]) -> None:
    for verb in ("cancel", "retry"):
        error = shop.error("jobs", verb, alike[0], COMMON, *PLACE, code=2)
        assert error["code"] == "ambiguous_job_id"
    states = {job["state"] for job in shop.json("jobs", "ls", *PLACE)["jobs"]}
    assert states == {"ready"}


def test_few_candidates_are_counted() -> None:
    assert ambiguous("0198c2f4", [b"\0" * 16, b"\1" * 16], []).what == (
        "2 job ids begin with '0198c2f4'"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0198c2f", "'0198c2f' is too short for a job id"),
        ("0198-c2f", "'0198-c2f' is too short for a job id"),
        ("nonsense", "'nonsense' is not a job id"),
        ("0198c2fg", "'0198c2fg' is not a job id"),
        ("caf\udce9", "'caf\\udce9' is not a job id"),
        ("٠١٢٣٤٥٦٧", "'٠١٢٣٤٥٦٧' is not a job id"),
        ("", "'' is not a job id"),
        ("0" * 33, f"'{'0' * 33}' is not a job id"),
    ],
)
def test_text_that_begins_no_id(shop: Terminal, text: str, said: str) -> None:
    with pytest.raises(InvalidJobId) as refused:
        id_digits(text)
    assert refused.value.what == said
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    error = shop.error("jobs", "cancel", text, *PLACE, code=2)
    assert (error["code"], error["what"]) == ("invalid_job_id", said)
    assert "8 digits" in error["cure"]


def test_whole_ids_are_not_looked_up() -> None:
    whole = "0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55"
    assert bytes.fromhex(id_digits(whole)) == id_bytes(whole)

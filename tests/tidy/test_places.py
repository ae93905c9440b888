"""What one more column of a job, or one more option, costs: the files that must name it."""

import re

import pytest

from tests.tidy.house import SRC

# A sample of each, and how many files may name it. Lower a number when a change allows it.
FILES_MAX = {
    "parked_at": 15,  # a column that a claim, a move, the exits and explain need
    "result_ttl": 4,  # the table of options, two signatures, the cure of an error
}


def files_naming(word: str) -> list[str]:
    named = re.compile(rf"\b{word}s?\b")
    return [
        path.relative_to(SRC).as_posix()
        for path in sorted(SRC.rglob("*"))
        if path.suffix in {".py", ".sql"}
        and named.search(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("word", FILES_MAX)
def test_a_sample_is_named_in_few_files(word: str) -> None:
    found = files_naming(word)
    print(f"{word}: {len(found)} files: {', '.join(found)}")
    assert len(found) <= FILES_MAX[word], (
        f"{word} is named in {len(found)} files, {FILES_MAX[word]} before: "
        "take it from model/options.py or model/job.py instead"
    )

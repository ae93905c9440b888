import pytest

from durio.errors import InvalidOption
from durio.model.quantities import size_bytes


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", 0),
        ("4096", 4096),
        ("500MB", 500 * 2**20),
        ("500m", 500 * 2**20),
        (" 1.5 GiB ", 3 * 2**29),
        ("2k", 2048),
        ("1T", 2**40),
        ("7b", 7),
    ],
)
def test_sizes(text: str, wanted: int):
    assert size_bytes(text, "--recycle-rss") == wanted


@pytest.mark.parametrize("text", ["", "much", "-1", "1X", "1.5.2M", "1e9", "inf"])
def test_what_is_no_size(text: str):
    with pytest.raises(InvalidOption, match="--recycle-rss is "):
        size_bytes(text, "--recycle-rss")

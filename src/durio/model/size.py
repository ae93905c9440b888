"""Amounts of memory as people write them: 500MB, 1.5G, 4096."""

import re

from durio.model.errors import InvalidOption

UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def size_bytes(text: str, what: str) -> int:
    """Bytes; K, M, G and T count in steps of 1024, whatever follows them."""
    match = WRITTEN.fullmatch(text.strip())
    if match is None:
        raise InvalidOption(
            f"{what} is {text!r}, which is no amount of memory",
            cure="Write it as 500MB, 1.5G or a number of bytes.",
        )
    return int(float(match[1]) * UNITS[match[2].lower()])

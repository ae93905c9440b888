"""Job ids: UUIDv7, made from a time and random bits that the clock provides."""

import re
import struct
from collections.abc import Sequence

from durio.model.errors import JobNotFound

IDS_NAMED_MAX = 5
DIGITS = 32  # of an id, without dashes
packed = struct.Struct(">QQ").pack
SHAPE = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII
)


def uuid7(milliseconds: int, counter: int, bits: int) -> bytes:
    """Return 16 bytes that sort by time, then by counter (12 bits), then at random."""
    high = (milliseconds << 16) | 0x7000 | (counter & 0xFFF)
    return packed(high, (2 << 62) | (bits & 0x3FFFFFFFFFFFFFFF))


def id_made_at(raw: bytes) -> float:
    """Return when an id was made, in seconds since 1970 by its maker's clock."""
    return int.from_bytes(raw[:6]) / 1000


def id_text(raw: bytes) -> str:
    """Return the canonical text of an id, as people see it."""
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def id_bytes(text: str) -> bytes:
    """Return the stored form of an id; raise JobNotFound for text that is not an id."""
    if not isinstance(text, str) or SHAPE.fullmatch(text.lower()) is None:
        raise JobNotFound(
            f"{str(text)[:60]!r} is not a job id",
            cure="Ids look like 0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55.",
            id=str(text)[:60],
        )
    return bytes.fromhex(text.replace("-", ""))


def format_ids(ids: Sequence[bytes]) -> str:
    """Return the first IDS_NAMED_MAX ids and the number of the others."""
    named = ", ".join(id_text(job_id) for job_id in ids[:IDS_NAMED_MAX])
    more = len(ids) - IDS_NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named

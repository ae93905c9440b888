"""The built page: files of the folder `static/`, read once by each process."""

import mimetypes
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"


@cache
def file_text(name: str) -> str:
    """Return a file beside the assets."""
    return (STATIC / name).read_text(encoding="utf-8")


@cache
def assets() -> dict[str, tuple[bytes, str]]:
    """Return every asset with its type: only what is in the folder can be asked for."""
    return {
        path.name: (
            path.read_bytes(),
            mimetypes.guess_type(path.name)[0] or "application/octet-stream",
        )
        for path in sorted((STATIC / "assets").glob("*"))
        if path.is_file()
    }

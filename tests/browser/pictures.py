"""The pictures of docs/pictures: one sheet per screen, in both themes, wide and on a phone.

.venv/bin/python -m tests.browser.pictures    # or make pictures, which installs the fonts
"""

import tempfile
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.conftest import SWITCHES
from tests.browser.site import ADMIN, ROOT, Site
from tests.browser.watch import logged_in

FOLDER = ROOT / "docs/pictures"
BYTES_MAX = 150_000
QUALITIES = (82, 74, 66, 58, 50, 42)
THEMES = ("light", "dark")
# The name of each sheet, and the address of its screen; a name in braces is an id.
SHEETS = {
    "overview": "./",
    "jobs": "jobs",
    "job": "jobs/{dead}",
    "queues": "queues?open=newsletter",
    "tasks": "tasks",
    "errors": "errors?open={error}",
    "dead-letters": "dead",
    "schedules": "schedules?open=digest",
    "plan": "plans/{plan}",
    "workers": "workers",
    "limits": "limits",
    "audit": "audit",
    "settings": "settings",
    "users": "users",
}
SHEET = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 24px; background: #8a8f86; display: grid; gap: 24px;
  grid-template-columns: 1fr 213px; width: 1100px; }}
img {{ width: 100%; border-radius: 8px; display: block; }}
</style>{images}"""


def main() -> None:
    """Take every picture, on a scene that is made anew."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        site = Site(f"sqlite:///{folder}/shop.db", Path(folder))
        try:
            site.begin()
            site.add_user(ADMIN, "admin")
            address = site.dashboard()
            taken = {
                (theme, phone): take_all(browser, address, theme, phone=phone)
                for theme in THEMES
                for phone in (False, True)
            }
        finally:
            site.end()
        for name in SHEETS:
            shots = [
                taken[theme, phone][name] for theme in THEMES for phone in (False, True)
            ]
            path = FOLDER / f"{name}.jpg"
            path.write_bytes(sheet_of(browser, shots))
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


@contextmanager
def chromium() -> Generator[Browser]:
    """Debian's Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=which("chromium"), args=SWITCHES
        )
        yield browser
        browser.close()


def take_all(
    browser: Browser, address: str, theme: str, *, phone: bool
) -> dict[str, bytes]:
    """Return a picture of each screen as one look shows it."""
    with logged_in(browser, address, theme=theme, phone=phone) as watch:
        things = watch.things()
        taken: dict[str, bytes] = {}
        for name, path in SHEETS.items():
            watch.page.goto(path.format(**things))
            expect(watch.page.locator("main h1")).to_be_visible()
            watch.page.wait_for_load_state("networkidle", timeout=3_000)
            expect(watch.page.locator(".skel")).to_have_count(0)
            taken[name] = watch.page.screenshot()
        return taken


def sheet_of(browser: Browser, shots: list[bytes]) -> bytes:
    """Return one JPEG with all of them, as good as fits into its size."""
    page = browser.new_page(viewport={"width": 1148, "height": 600})
    sources = [f"data:image/png;base64,{b64encode(shot).decode()}" for shot in shots]
    page.set_content(
        SHEET.format(images="".join(f'<img src="{source}">' for source in sources))
    )
    try:
        for quality in QUALITIES:
            sheet = page.screenshot(full_page=True, type="jpeg", quality=quality)
            if len(sheet) <= BYTES_MAX:
                return sheet
    finally:
        page.close()
    raise SystemExit(f"a sheet has more than {BYTES_MAX} bytes at any quality")


if __name__ == "__main__":
    main()

"""Run the doctor beside the event loop: some of its checks block for seconds."""

import asyncio
from typing import TYPE_CHECKING

from durio.doctor.examine import examine_content, examine_outside, with_commands
from durio.model.finding import Finding
from durio.web.threads import BesideLoop

if TYPE_CHECKING:
    from durio.app.app import App

THREADS = BesideLoop(1)


async def examined(app: "App") -> list[Finding]:
    """Return what the doctor finds about one App, its store and this machine."""
    has_code = bool(app.registry.handlers)

    def outside() -> tuple[list[Finding], bool]:
        return asyncio.run(examine_outside(app, has_code=has_code))

    found, is_readable = await THREADS.run(outside)
    if is_readable:
        found += await examine_content(app, has_code=has_code, is_named=True)
    return with_commands(found, app)

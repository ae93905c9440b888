"""What a user sees of arguments, meta and results: JSON text, or nothing.

Without the right to see payloads all of it is hidden. A formatter of the host application
(`mask=`) may hide fields: it gets 50 ms for a job, and an error in it hides everything.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from durio.web.threads import BesideLoop

if TYPE_CHECKING:
    from durio.web.call import WebCall

MASK_SECONDS_MAX = 0.05
THREADS = BesideLoop(4)

Payloads = Mapping[str, Any]  # by name: args, kwargs, meta, result


async def shown_payloads(
    call: "WebCall", task: str, payloads: Payloads
) -> dict[str, str] | None:
    """Return each payload as JSON text; None if they are hidden from this user."""
    if not call.user.sees_payloads:
        return None
    mask = call.site.options.mask
    if mask is None:
        return {name: json_text(value) for name, value in payloads.items()}

    def masked() -> dict[str, str]:
        return {
            name: json_text(mask(task, name, value)) for name, value in payloads.items()
        }

    try:
        async with asyncio.timeout(MASK_SECONDS_MAX):
            return await THREADS.run(masked)
    except (Exception, SystemExit) as error:
        call.site.report(error)
        return None


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

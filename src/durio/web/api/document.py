"""`admin/openapi.json`: the document of this API, for tools."""

import functools
from typing import Any

from fastapi import APIRouter, Request

from durio.web.roles import Viewer

router = APIRouter(tags=["document"])


@router.get("/openapi.json")
async def show_document(call: Viewer, request: Request) -> dict[str, Any]:
    """Return the OpenAPI document, with the address of this mount."""
    document = whole_document(request.app)
    return {**document, "servers": [{"url": call.root or "/"}]}


@functools.cache
def whole_document(api: Any) -> dict[str, Any]:
    return api.openapi()

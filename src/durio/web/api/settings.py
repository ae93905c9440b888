"""`admin/settings` and `admin/doctor`: how this dashboard is set up, and what is wrong."""

import platform
from datetime import datetime
from typing import Literal

import fastapi
from fastapi import APIRouter

from durio.app.configuration import TOP_LEVEL_NAMES, SettingOrigin, setting_names
from durio.app.connect import masked, scheme_of
from durio.model.job import utc_datetime
from durio.model.version import __version__
from durio.web.access.sessions import IDLE_SECONDS_MAX, SECONDS_MAX
from durio.web.api.me import StoreName
from durio.web.api.shapes import LIMIT_MAX, Answer
from durio.web.body import BODY_BYTES_MAX
from durio.web.call import WebCall
from durio.web.roles import Operator

router = APIRouter(tags=["settings"])


class SettingItem(Answer):
    name: str
    value: str
    origin: str  # code, environment, file or default, with its place


class AllSettings(Answer):
    settings: list[SettingItem]
    app: str
    store: StoreName
    versions: dict[str, str]
    limits: dict[str, float]  # of this API


class DoctorFinding(Answer):
    level: Literal["ok", "warning", "error"]
    code: str
    text: str
    fix: str | None


class DoctorReport(Answer):
    findings: list[DoctorFinding]
    ran_at: datetime | None


@router.get("/settings")
async def show_settings(call: Operator) -> AllSettings:
    """Return the settings of this process, without passwords."""
    app = call.app
    return AllSettings(
        settings=setting_items(call),
        app=app.name,
        store=StoreName(kind=scheme_of(app.url), url_redacted=masked(app.url)),
        versions={
            "durio": __version__,
            "python": platform.python_version(),
            "fastapi": fastapi.__version__,
            **({} if app.version is None else {"code": str(app.version)}),
        },
        limits={
            "body_bytes": BODY_BYTES_MAX,
            "page_items": LIMIT_MAX,
            "session_idle_seconds": IDLE_SECONDS_MAX,
            "session_seconds": SECONDS_MAX,
        },
    )


@router.get("/doctor")
async def run_doctor(call: Operator) -> DoctorReport:
    """Return what `durio doctor` finds; it looks at most every 10 seconds."""
    found = await call.site.doctor.read()
    return DoctorReport(
        findings=[
            DoctorFinding(
                level=each.severity,
                code=each.name,
                text=each.evidence,
                fix=each.fix or None,
            )
            for each in found.value
        ],
        ran_at=utc_datetime(found.at),
    )


def setting_items(call: WebCall) -> list[SettingItem]:
    app, known = call.app, call.app.configuration
    values: dict[str, object] = {"url": masked(app.url), "name": app.name}
    for name in setting_names():
        group, _, field = name.partition(".")
        values[name] = getattr(getattr(app.settings, group), field)
    return [
        SettingItem(name=name, value=str(value), origin=origin_text(known.origin(name)))
        for name, value in values.items()
        if value is not None or name in TOP_LEVEL_NAMES
    ]


def origin_text(origin: SettingOrigin) -> str:
    return f"{origin.kind} {origin.location}".strip()

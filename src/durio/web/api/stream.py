"""`admin/stream`: what changes, as server-sent events; `admin/poll`: the same by asking."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from durio.web.api.job_detail import job_of
from durio.web.api.plans import known_plan
from durio.web.api.shapes import Answer
from durio.web.call import WebCall
from durio.web.event_stream import EventStream
from durio.web.problems import Refusal
from durio.web.roles import Viewer
from durio.web.topics import KINDS, Watched
from durio.web.wsgi import WITHOUT_STREAMS

router = APIRouter(tags=["stream"])

TOPICS_MAX = 16
TOPICS_CHARS_MAX = 2_000
ID_CHARS_MAX = 100

Topics = Annotated[
    str,
    Query(max_length=TOPICS_CHARS_MAX, description="names, separated by commas"),
]


class PollAnswer(Answer):
    events: list[dict[str, Any]]  # as the stream sends them
    since: str  # for the next call


@router.get(
    "/stream",
    status_code=200,
    response_class=EventStream,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def open_stream(
    call: Viewer,
    request: Request,
    topics: Topics,
    last_event_id: Annotated[str | None, Header(max_length=ID_CHARS_MAX)] = None,
) -> Response:
    """Send a message whenever something of a topic changes.

    Read the data after the stream is open: what changes later leads to a message.
    """
    if request.scope.get(WITHOUT_STREAMS):
        raise Refusal(
            501,
            "no_stream",
            "a WSGI server cannot send a stream",
            "Use admin/poll, or an ASGI server.",
        )
    watched = await watched_topics(call, topics)
    feeds = call.site.feeds
    viewer = await feeds.watch(watched, last_event_id)
    return EventStream(feeds, viewer, call.app.clock, call.still_valid)


@router.get("/poll")
async def poll(
    call: Viewer,
    topics: Topics,
    since: Annotated[str | None, Query(max_length=ID_CHARS_MAX)] = None,
) -> PollAnswer:
    """Return what has changed since the call before; without `since`, what is known."""
    watched = await watched_topics(call, topics)
    events, mark = await call.site.feeds.poll(watched, since)
    return PollAnswer(events=events, since=mark)


async def watched_topics(call: WebCall, text: str) -> list[Watched]:
    """Return the topics; refuse unknown ones, and what the user may not see."""
    names = list(dict.fromkeys(name for name in text.split(",") if name))
    if not 0 < len(names) <= TOPICS_MAX:
        raise Refusal(
            400,
            "too_many_topics" if names else "no_topics",
            f"a stream has 1 to {TOPICS_MAX} topics; these are {len(names)}",
            "Open one stream for what is shown now.",
        )
    queues = call.user.queues
    limited_to = None if queues is None else tuple(sorted(queues))
    watched = [Watched(name, limited_to) for name in names]
    for topic in watched:
        await check_topic(call, topic)
    return watched


async def check_topic(call: WebCall, topic: Watched) -> None:
    kind = KINDS.get(topic.kind)
    if kind is None or kind.has_id is not bool(topic.id):
        listed = ", ".join(
            f"{name}:<id>" if each.has_id else name for name, each in KINDS.items()
        )
        raise Refusal(
            400, "unknown_topic", f"there is no topic {topic.name!r:.80}", listed
        )
    if topic.kind == "job":
        await job_of(call, topic.id)
    elif topic.kind == "plan":
        await known_plan(call, topic.id)

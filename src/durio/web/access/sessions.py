"""Sessions: an opaque id in a cookie, its hash a record, so that every dashboard knows it."""

import base64
import hashlib
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from durio.model.effects import Effects, Put
from durio.model.errors import StoreError
from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.web.access.users import StoredUser, Users

ID_BYTES = 32
ID_CHARS = 43  # of base64 without padding
HOUR = 3600.0
IDLE_SECONDS_MAX = 12 * HOUR
SECONDS_MAX = 7 * 24 * HOUR
TOUCH_SECONDS = 60.0  # a request writes its time at most this often


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session, as the record has it; its name is the hash of the id."""

    user: str
    generation: str  # of the user at the login
    started_at: float
    seen_at: float


class LiveSession(NamedTuple):
    """A session that is valid now."""

    user: StoredUser
    name: str  # of its record


_decoder = msgspec.json.Decoder(StoredSession)


def sessions_kind(namespace: str) -> str:
    return f"web-session:{namespace}"


class Sessions:
    """The sessions of one App's dashboards."""

    def __init__(self, store: Store, namespace: str, clock: Clock) -> None:
        self.store = store
        self.kind = sessions_kind(namespace)
        self.clock = clock
        self.users = Users(store, namespace, clock)

    async def begin(self, user: StoredUser) -> str:
        """Store a new session and return its id, which only the browser keeps."""
        raw = self.clock.secret_bytes(ID_BYTES)
        session_id = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        now = self.clock.now()
        session = StoredSession(
            user=user.name, generation=user.generation, started_at=now, seen_at=now
        )
        await self.write(name_of(session_id), session, 0)
        return session_id

    async def find(self, session_id: str) -> LiveSession | None:
        """Return the session of an id with its user; None if it has ended."""
        if len(session_id) != ID_CHARS:
            return None
        name = name_of(session_id)
        for record in await self.store.records(self.kind, [name]):
            session = _decoder.decode(record.body)
            now = self.clock.now()
            if (
                now - session.started_at >= SECONDS_MAX
                or now - session.seen_at >= IDLE_SECONDS_MAX
            ):
                return None
            found = await self.users.find(session.user)
            if found is None or found.user.generation != session.generation:
                return None
            if now - session.seen_at >= TOUCH_SECONDS:
                await self.touch(name, replace(session, seen_at=now), record.version)
            return LiveSession(found.user, name)
        return None

    async def touch(self, name: str, session: StoredSession, version: int) -> None:
        """Write when the session was used; a store that refuses it ends no session."""
        try:
            await self.write(name, session, version)
        except StoreError:
            return

    async def end(self, session_id: str) -> None:
        """Delete a session."""
        put = Put(self.kind, name_of(session_id), None)
        await self.store.commit(Effects(puts=[put]))

    async def write(self, name: str, session: StoredSession, if_version: int) -> None:
        left = session.started_at + SECONDS_MAX - session.seen_at
        put = Put(
            self.kind,
            name,
            msgspec.json.encode(session),
            if_version=if_version,
            ttl_seconds=max(1.0, min(IDLE_SECONDS_MAX, left)),
        )
        await self.store.commit(Effects(puts=[put]))


def name_of(session_id: str) -> str:
    """Return the name of the record: who can read the store cannot take over sessions."""
    return hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()

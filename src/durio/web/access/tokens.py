"""Tokens for programs: `durio_<id>_<secret>`, of which only a hash is stored.

A token has a role, or purposes, or both. A role is for the admin API, as that of a user. A
purpose allows one thing without a role: `enqueue`, `work`, `metrics`, `scale`. Who may enqueue
any task may run any code that workers have: bind such a token to tasks.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from durio.model.effects import Effects, Put
from durio.model.errors import InvalidName, InvalidOption, OperatingError, StoreError
from durio.ports.clock import Clock
from durio.ports.control import AuditNote
from durio.ports.store import Store
from durio.web.identity import NAME_CHARS_MAX, ROLES, Identity, Role, User

Purpose = Literal["enqueue", "work", "metrics", "scale"]

PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
ID_BYTES = 6
SECRET_BYTES = 32
SHAPE = re.compile(r"durio_(?P<id>[0-9a-f]{12})_(?P<secret>[\w-]{43})", re.ASCII)
PREFIX = "durio_"
PAGE_TOKENS = 200
TOUCH_SECONDS = 60.0  # a use is written at most this often
DAY = 86400.0
ENDED_KEPT_SECONDS = 30 * DAY  # lists show a token for this time after its end


class TokenNotFound(OperatingError):
    """There is no token of this id."""

    code = "token_not_found"
    http_status = 404


class StoredToken(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A token, as the record has it."""

    id: str
    name: str
    hash: str  # SHA-256 of the secret, which is too long to be guessed
    role: Role | None = None
    purposes: tuple[Purpose, ...] = ()
    queues: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None  # names, or prefixes that end in `*`
    payloads: bool | None = None
    ends_at: float | None = None
    created_at: float
    created_by: str
    last_used_at: float | None = None

    def identity(self) -> Identity:
        """Return who a request with this token is."""
        user = User(self.name, self.role or "viewer", self.queues, self.payloads)
        return Identity(
            user,
            "token",
            self.id,
            has_role=self.role is not None,
            purposes=frozenset(self.purposes),
            tasks=self.tasks,
        )


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a new token may do."""

    name: str
    role: Role | None = None
    purposes: tuple[Purpose, ...] = ()
    queues: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    payloads: bool | None = None
    ends_in_seconds: float | None = None

    def check(self) -> None:
        """Refuse what cannot be."""
        if not 0 < len(self.name) <= NAME_CHARS_MAX or not self.name.isprintable():
            raise InvalidName(
                f"a token cannot be named {self.name!r:.100}",
                cure=f"Use 1 to {NAME_CHARS_MAX} printable characters.",
            )
        if self.role is None and not self.purposes:
            raise InvalidOption(
                "this token could do nothing",
                cure=f"Give a role ({', '.join(ROLES)}) or a purpose "
                f"({', '.join(PURPOSES)}).",
            )
        check_words("role", [self.role] if self.role else [], ROLES)
        check_words("purpose", self.purposes, PURPOSES)
        if self.ends_in_seconds is not None and self.ends_in_seconds <= 0:
            raise InvalidOption("a token cannot end now", cure="Give it more time.")


class NewToken(NamedTuple):
    """A token that was made, with its text, which nobody can read again."""

    stored: StoredToken
    text: str


_decoder = msgspec.json.Decoder(StoredToken)


def tokens_kind(namespace: str) -> str:
    return f"web-token:{namespace}"


class Tokens:
    """The tokens of one App's dashboards."""

    def __init__(self, store: Store, namespace: str, clock: Clock) -> None:
        self.store = store
        self.kind = tokens_kind(namespace)
        self.clock = clock

    async def create(
        self, request: TokenRequest, *, by: str, note: AuditNote | None = None
    ) -> NewToken:
        """Store a new token and return it with its text."""
        request.check()
        token_id = self.clock.secret_bytes(ID_BYTES).hex()
        raw = self.clock.secret_bytes(SECRET_BYTES)
        secret = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        now, left = self.clock.now(), request.ends_in_seconds
        token = StoredToken(
            id=token_id,
            name=request.name,
            hash=hash_of(secret),
            role=request.role,
            purposes=request.purposes,
            queues=request.queues,
            tasks=request.tasks,
            payloads=request.payloads,
            ends_at=None if left is None else now + left,
            created_at=now,
            created_by=by,
        )
        if note is not None:
            note.target = note.target or f"token {token_id} {request.name}"
        await self.write(token, 0, note)
        return NewToken(token, f"{PREFIX}{token_id}_{secret}")

    async def find(self, text: str) -> StoredToken | None:
        """Return a valid token by its text, and note that it was used."""
        found = SHAPE.fullmatch(text)
        if found is None:
            return None
        for record in await self.store.records(self.kind, [found["id"]]):
            token, now = _decoder.decode(record.body), self.clock.now()
            is_right = hmac.compare_digest(hash_of(found["secret"]), token.hash)
            if not is_right or (token.ends_at is not None and now >= token.ends_at):
                return None
            if now - (token.last_used_at or 0.0) >= TOUCH_SECONDS:
                await self.touch(replace(token, last_used_at=now), record.version)
            return token
        return None

    async def touch(self, token: StoredToken, version: int) -> None:
        """Write when the token was used; one that was revoked meanwhile stays so."""
        try:
            await self.write(token, version, None)
        except StoreError:
            return

    async def list(
        self, after: str = "", limit: int = PAGE_TOKENS
    ) -> list[StoredToken]:
        """Return tokens in the order of their ids."""
        records = await self.store.list_records(self.kind, after=after, limit=limit)
        return [_decoder.decode(record.body) for record in records]

    async def is_empty(self) -> bool:
        return not await self.store.list_records(self.kind, limit=1)

    async def revoke(self, token_id: str, note: AuditNote | None = None) -> StoredToken:
        """Delete a token: it is refused from now on; raises TokenNotFound."""
        records = await self.store.records(self.kind, [token_id])
        if not records:
            raise TokenNotFound(
                f"there is no token {token_id!r:.60}",
                cure="List them: durio tokens ls",
            )
        await self.store.commit(
            Effects(puts=[Put(self.kind, token_id, None)]), note=note
        )
        return _decoder.decode(records[0].body)

    async def write(
        self, token: StoredToken, if_version: int, note: AuditNote | None
    ) -> None:
        ends_at = token.ends_at
        left = None if ends_at is None else max(0.0, ends_at - self.clock.now())
        put = Put(
            self.kind,
            token.id,
            msgspec.json.encode(token),
            if_version=if_version,
            ttl_seconds=None if left is None else left + ENDED_KEPT_SECONDS,
        )
        await self.store.commit(Effects(puts=[put]), note=note)


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def check_words(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    for word in given:
        if word not in known:
            raise InvalidOption(
                f"there is no {what} {word!r:.60}", cure=f"Known: {', '.join(known)}."
            )

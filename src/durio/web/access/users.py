"""Users of dashboards, as records of the store: added, changed and looked up by name.

A user has a `generation`, which a new password, role or limit replaces. Sessions have the one
of their login: they end when it is replaced, and when the user is deleted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from durio.model.effects import Effects, Put
from durio.model.errors import InvalidName, InvalidOption, OperatingError
from durio.ports.clock import Clock
from durio.ports.control import AuditNote
from durio.ports.store import Store
from durio.web.access.passwords import check_password, new_hash
from durio.web.identity import NAME_CHARS_MAX, ROLES, Role, User

GENERATION_BYTES = 8
PAGE_USERS = 200
UNCHANGED = msgspec.UNSET


class UserNotFound(OperatingError):
    """There is no user of this name."""

    code = "user_not_found"
    http_status = 404


class UserConflict(OperatingError):
    """A user of this name exists already, or was changed meanwhile."""

    code = "user_conflict"
    http_status = 409


class StoredUser(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A user, as the record has it."""

    name: str
    role: Role
    password: str  # hashed, see passwords.py
    generation: str
    queues: tuple[str, ...] | None = None
    payloads: bool | None = None
    created_at: float
    last_login_at: float | None = None

    def user(self) -> User:
        return User(self.name, self.role, self.queues, self.payloads)


class UserRecord(NamedTuple):
    """A user with the version of its record."""

    user: StoredUser
    version: int


class UserChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change about a user."""

    password: str | msgspec.UnsetType = UNCHANGED
    role: Role | msgspec.UnsetType = UNCHANGED
    queues: tuple[str, ...] | msgspec.UnsetType | None = UNCHANGED
    payloads: bool | msgspec.UnsetType | None = UNCHANGED


_decoder = msgspec.json.Decoder(StoredUser)


def users_kind(namespace: str) -> str:
    return f"web-user:{namespace}"


class Users:
    """The users of one App's dashboards."""

    def __init__(self, store: Store, namespace: str, clock: Clock) -> None:
        self.store = store
        self.kind = users_kind(namespace)
        self.clock = clock

    async def find(self, name: str) -> UserRecord | None:
        """Return a user; None if there is none."""
        if not is_user_name(name):
            return None
        for record in await self.store.records(self.kind, [name]):
            return UserRecord(_decoder.decode(record.body), record.version)
        return None

    async def get(self, name: str) -> UserRecord:
        """Return a user; raises UserNotFound."""
        found = await self.find(name)
        if found is None:
            raise UserNotFound(
                f"there is no user {name!r:.140}", cure="List them: durio users ls"
            )
        return found

    async def list(self, after: str = "", limit: int = PAGE_USERS) -> list[StoredUser]:
        """Return users in the order of their names."""
        records = await self.store.list_records(self.kind, after=after, limit=limit)
        return [_decoder.decode(record.body) for record in records]

    async def is_empty(self) -> bool:
        return not await self.store.list_records(self.kind, limit=1)

    async def add(
        self,
        name: str,
        password: str,
        role: Role,
        *,
        queues: Sequence[str] | None = None,
        payloads: bool | None = None,
        note: AuditNote | None = None,
    ) -> StoredUser:
        """Store a new user; raises UserConflict if there is one of this name."""
        check_user_name(name)
        User(name, role)  # raises for a role that does not exist
        user = StoredUser(
            name=name,
            role=role,
            password=await new_hash(self.clock, password),
            generation=self.new_generation(),
            queues=None if queues is None else tuple(queues),
            payloads=payloads,
            created_at=self.clock.now(),
        )
        if not await self.write(user, 0, note):
            raise UserConflict(
                f"there is a user {name!r} already",
                cure=f"Change it: durio users role {name} {role}",
            )
        return user

    async def change(
        self, name: str, change: UserChange, note: AuditNote | None = None
    ) -> StoredUser:
        """Change a user, and end its sessions."""
        found = await self.get(name)
        values = {
            key: value
            for key, value in msgspec.structs.asdict(change).items()
            if value is not UNCHANGED
        }
        if "password" in values:
            check_password(values["password"])
            values["password"] = await new_hash(self.clock, values["password"])
        if "role" in values and values["role"] not in ROLES:
            raise InvalidOption(
                f"there is no role {values['role']!r:.60}",
                cure=f"Roles: {', '.join(ROLES)}.",
            )
        changed = replace(found.user, generation=self.new_generation(), **values)
        if not await self.write(changed, found.version, note):
            raise UserConflict(
                f"user {name!r} was changed meanwhile", cure="Try again."
            )
        return changed

    async def remove(self, name: str, note: AuditNote | None = None) -> None:
        """Delete a user, and end its sessions."""
        found = await self.get(name)
        put = Put(self.kind, name, None, if_version=found.version)
        committed = await self.store.commit(Effects(puts=[put]), note=note)
        if committed.conflict is not None:
            raise UserConflict(
                f"user {name!r} was changed meanwhile", cure="Try again."
            )

    async def note_login(self, found: UserRecord) -> None:
        """Write when the user has logged in; not if the user was changed meanwhile."""
        user = replace(found.user, last_login_at=self.clock.now())
        await self.write(user, found.version, None)

    async def write(
        self, user: StoredUser, if_version: int, note: AuditNote | None
    ) -> bool:
        body = msgspec.json.encode(user)
        put = Put(self.kind, user.name, body, if_version=if_version)
        committed = await self.store.commit(Effects(puts=[put]), note=note)
        return committed.conflict is None

    def new_generation(self) -> str:
        return self.clock.secret_bytes(GENERATION_BYTES).hex()


def check_user_name(name: object) -> str:
    """Return the name of a user if it can be one."""
    if not isinstance(name, str) or not is_user_name(name):
        raise InvalidName(
            f"a user cannot be named {name!r:.100}",
            cure=f"Use 1 to {NAME_CHARS_MAX} printable characters without spaces, such "
            "as ann or ann@example.com.",
        )
    return name


def is_user_name(name: str) -> bool:
    fits = 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()
    return fits and not any(character.isspace() for character in name)

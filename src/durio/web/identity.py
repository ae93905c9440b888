"""Who asks: a user with a role, and the credential that says so."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast, get_args

from durio.model.errors import InvalidOption
from durio.model.names import known_as

Role = Literal["viewer", "operator", "admin"]
Via = Literal["session", "token", "hook", "basic", "dev"]

ROLES: tuple[Role, ...] = get_args(Role)
NAME_CHARS_MAX = 128


@dataclass(frozen=True, slots=True)
class User:
    """A user of the dashboard, as a hook returns it: `User("ann", "operator")`.

    Raises InvalidOption for a role that does not exist or a name that is not text.
    """

    __module__ = "durio.web"

    name: str  # for the audit
    role: Role  # viewer, operator or admin
    # The queues that this user may see and change; None: all of them.
    queues: tuple[str, ...] | None = None
    # Whether arguments, meta, results and tracebacks are shown. None: not to a viewer.
    payloads: bool | None = None

    def __post_init__(self) -> None:
        """Check what a hook or a record has given."""
        name = cast("object", self.name)
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
            raise InvalidOption(
                f"a user cannot be named {name!r:.100}",
                cure=f"Give text of 1 to {NAME_CHARS_MAX} characters.",
            )
        if self.role not in ROLES:
            raise InvalidOption(
                f"there is no role {self.role!r:.60}",
                cure=f"Roles: {', '.join(ROLES)}.",
            )
        queues = cast("object", self.queues)
        if queues is not None:
            object.__setattr__(self, "queues", checked_queues(queues))

    @property
    def sees_payloads(self) -> bool:
        """Whether arguments, meta, results and tracebacks are shown."""
        return self.role != "viewer" if self.payloads is None else self.payloads

    def has(self, role: Role) -> bool:
        """Whether the user may do what this role may."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def sees(self, queue: str) -> bool:
        """Whether the user may see this queue."""
        return self.queues is None or queue in self.queues


def checked_queues(queues: object) -> tuple[str, ...]:
    if isinstance(queues, str) or not isinstance(queues, Iterable):
        raise InvalidOption(
            f"queues cannot be {queues!r:.60}", cure='Give names: queues=["mail"].'
        )
    return tuple(str(queue) for queue in cast("Iterable[object]", queues))


@dataclass(frozen=True, slots=True)
class Identity:
    """A user, and how the request has shown who it is."""

    user: User
    via: Via
    credential: str = ""  # the id of the session or token; never its secret
    has_role: bool = True  # False: a token that has only purposes
    purposes: frozenset[str] = frozenset()  # of a token, see access/tokens.py
    tasks: tuple[str, ...] | None = None  # that a token may see and enqueue

    def may_reach(self, role: Role, purpose: str | None) -> bool:
        """Whether the role or a purpose allows a route."""
        if purpose is not None and purpose in self.purposes:
            return True
        return self.has_role and self.user.has(role)

    def sees_task(self, task: str) -> bool:
        """Whether the credential is for this task: by name, or by a prefix with `*`."""
        return self.tasks is None or known_as(task, self.tasks) is not None

    @property
    def sends_cookies(self) -> bool:
        """Whether a browser adds the credential by itself, also for other sites."""
        return self.via != "token"

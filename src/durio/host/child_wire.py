"""The messages between a worker and its child processes: msgpack in frames, no pickle.

A frame is four bytes of length and one message. Arguments, results and errors are sent as
the bytes that the store keeps; only the child that runs the task decodes them.
"""

import msgspec

from durio.model.errors import InvariantBroken
from durio.model.job import Claim
from durio.model.outcome import Outcome
from durio.model.settings import Settings
from durio.telemetry.emit import JobEvent

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 1 << 30  # as much as a row of a store can hold
READ_BYTES = 1 << 16
CONNECTION_LOST_CODE = 76  # exit code of a child that cannot reach its worker

# --- to a child


class TaskOrigin(msgspec.Struct, array_like=True, frozen=True):
    """The location of a task's function."""

    task: str
    module: str
    name: str  # within the module


class AppOrigin(msgspec.Struct, array_like=True, frozen=True):
    """How a child process finds the App of its worker."""

    app: str | None  # module:attribute, as on a command line
    tasks: list[TaskOrigin]  # those with process=True
    path: list[str]  # sys.path
    main_module: str | None  # `python -m shop.main`
    main_file: str | None  # `python shop.py`


class Setup(msgspec.Struct, array_like=True, tag="setup", frozen=True):
    """The first message to a child."""

    origin: AppOrigin
    url: str
    folder: str  # base of relative paths in the URL
    settings: Settings
    worker: str  # host/pid
    log_level: int


class ChildRun(msgspec.Struct, array_like=True, tag="run", frozen=True):
    """Run an attempt of this job."""

    claim: Claim


class Warn(msgspec.Struct, array_like=True, tag="warn", frozen=True):
    """The current job has reached its soft time limit."""


class Interrupt(msgspec.Struct, array_like=True, tag="interrupt", frozen=True):
    """Cancel the current job."""

    why: str


class StackRequest(msgspec.Struct, array_like=True, tag="look", frozen=True):
    """Send the stacks of your threads."""


class End(msgspec.Struct, array_like=True, tag="end", frozen=True):
    """No more jobs: leave the dependencies and end."""


# --- from a child


class Ready(msgspec.Struct, array_like=True, tag="ready", frozen=True):
    """The App is loaded and its dependencies are entered."""

    tasks: list[str]


class LoadFailed(msgspec.Struct, array_like=True, tag="broken", frozen=True):
    """The App could not be loaded: the user's own error."""

    what: str
    traceback: str
    cure: str = ""


class Leaving(msgspec.Struct, array_like=True, tag="leaving", frozen=True):
    """The child ends because its loop is broken; `jobs` is how many it has started."""

    jobs: int


class ProgressUpdate(msgspec.Struct, array_like=True, tag="noted", frozen=True):
    """Progress of the current job."""

    progress: bytes


class ForwardedRecord(msgspec.Struct, array_like=True, tag="logged", frozen=True):
    name: str
    level: int
    text: str
    created: float
    location: tuple[str, int, str]  # file, line, function
    error: str  # its traceback, formatted
    extra: bytes  # JSON: msgpack bounds integers, and keys must be text
    in_job: bool


class StackReply(msgspec.Struct, array_like=True, tag="looked", frozen=True):
    """The stacks of all threads."""

    stack: str


class Finished(msgspec.Struct, array_like=True, tag="finished", frozen=True):
    """The attempt has ended; with the memory and CPU time of this process."""

    outcome: Outcome
    event: JobEvent | None
    rss_bytes: int
    cpu_seconds: float


ToChild = Setup | ChildRun | Warn | Interrupt | StackRequest | End
FromChild = (
    Ready
    | LoadFailed
    | Leaving
    | ProgressUpdate
    | ForwardedRecord
    | StackReply
    | Finished
)

encoder = msgspec.msgpack.Encoder(enc_hook=repr)
to_child = msgspec.msgpack.Decoder(ToChild)
from_child = msgspec.msgpack.Decoder(FromChild)


def encode_frame(message: ToChild | FromChild) -> bytes:
    body = encoder.encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise InvariantBroken(
            f"a message of {len(body)} bytes to or from a child process"
        )
    return len(body).to_bytes(LENGTH_BYTES) + body


class Frames:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add data; return the messages that are complete now."""
        self._bytes += data
        messages: list[bytes] = []
        start = 0
        while (body := start + LENGTH_BYTES) <= len(self._bytes):
            end = body + int.from_bytes(self._bytes[start:body])
            if end - body > FRAME_BYTES_MAX:
                raise InvariantBroken("a child process sent data that is not a frame")
            if end > len(self._bytes):
                break
            messages.append(bytes(self._bytes[body:end]))
            start = end
        del self._bytes[:start]
        return messages

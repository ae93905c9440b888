"""Commands to workers and their answers, as records.

A command is a record of the kind `command:<worker>`, and its name is the command's id. The
worker's next renewal returns it. The worker answers in one transaction: it deletes the
command and writes the answer as records of the kind `answer:<id>`, split into pieces that
fit. Both expire after an hour.
"""

COMMAND_PREFIX = "command:"
ANSWER_PREFIX = "answer:"
COMMANDS_MAX = 100  # returned by one renewal
COMMAND_TTL_SECONDS = 3600.0


def commands_kind(worker: int) -> str:
    """Return the kind of the commands to one worker."""
    return f"{COMMAND_PREFIX}{worker}"


def commanded_worker(kind: str) -> int | None:
    """Return the worker that records of this kind are for; None for another kind."""
    number = kind.removeprefix(COMMAND_PREFIX)
    if number == kind or not (number.isascii() and number.isdigit()):
        return None
    return int(number)


def answer_kind(command: str) -> str:
    """Return the kind of the records that hold the answer to one command."""
    return f"{ANSWER_PREFIX}{command}"

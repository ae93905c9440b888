"""Settings of the interpreter for a process that does nothing but run a worker."""

import gc
import sys

COLLECTOR_OBJECTS = 20_000  # new objects between two runs of the collector
# After this time a busy thread gives up the interpreter's lock, if another one waits for it.
SWITCH_SECONDS = 0.0001
USUAL_SWITCH_SECONDS = 0.005  # Python's default


def tune_interpreter() -> None:
    """Adapt the garbage collector and the switching of threads to the work of a worker.

    Jobs leave few cycles behind, and the collector looks at every live object each time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTOR_OBJECTS, 20, 50)
    tune_switching(has_busy_threads=False)


def tune_switching(has_busy_threads: bool) -> None:  # noqa: FBT001 - the only argument
    """Switch fast while tasks run in the event loop only.

    The store's thread needs the interpreter's lock after each statement. Between tasks that
    compute in threads, many switches would cost more than they bring.
    """
    sys.setswitchinterval(USUAL_SWITCH_SECONDS if has_busy_threads else SWITCH_SECONDS)

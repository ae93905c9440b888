"""Why an action on one job changed nothing: one error for each reason."""

from durio.client.result_waiters import held_by_transaction, not_found
from durio.model.errors import DurioError, WrongState
from durio.model.ids import id_text
from durio.model.job import STATE_BY_CODE, State
from durio.model.transitions import check_retry, check_run_now
from durio.ports.control import Acted, Verb


def refusal(acted: Acted, verb: Verb, flags: str = "") -> DurioError | None:
    """Return why the action was refused; None if it was done."""
    if acted.before is None or (acted.after is None and verb != "discard"):
        return not_found(acted.id)
    if acted.is_held:
        return held_by_transaction(acted, verb)
    before, job_id = STATE_BY_CODE[acted.before], id_text(acted.id)
    match verb:
        case "discard":
            return None if before is State.DEAD else not_dead(job_id, before, flags)
        case "retry":
            return retry_refusal(acted, before, job_id)
        case "run_now":
            return run_now_refusal(before, job_id)
        case "cancel":
            return cancel_refusal(before, job_id)


def cancel_refusal(before: State, job_id: str) -> DurioError | None:
    """Return why the job is not cancelled; None: it is, or was already."""
    if before.is_final and before is not State.CANCELLED:
        return WrongState(
            f"job {job_id} is {before.value} and cannot be cancelled",
            cure="Only jobs that have not ended can be cancelled.",
            state=before,
        )
    return None


def retry_refusal(acted: Acted, before: State, job_id: str) -> DurioError | None:
    """Return why the job is not retried; None if it is."""
    try:
        check_retry(before, job_id)
    except WrongState as error:
        return error
    if acted.after != acted.before:
        return None
    return WrongState(
        f"job {job_id} stays {before.value}: another job has its idempotency key now",
        cure="Two jobs with one key would run. Wait until the other job ends, or "
        "cancel it.",
        state=before,
    )


def run_now_refusal(before: State, job_id: str) -> DurioError | None:
    """Return why the job is not made ready; None: it is."""
    try:
        check_run_now(before, job_id)
    except WrongState as error:
        return error
    return None


def not_dead(job_id: str, state: State, flags: str = "") -> WrongState:
    """Return the error for a job that is not a dead letter."""
    return WrongState(
        f"job {job_id} is {state.value}, not dead",
        cure=f"See it with: durio jobs show {job_id}{flags}",
        state=state,
    )

"""The outcome of an attempt that returned a value."""

from durio.model.errors import PayloadTooLarge
from durio.model.options import RowOptions
from durio.model.outcome import Outcome
from durio.model.plan_kept import kept_for_plan
from durio.model.settings import Settings
from durio.worker.inflight import Attempt
from durio.worker.spending import with_settling


def done_outcome(attempt: Attempt, result: bytes, settings: Settings) -> Outcome:
    """Return it; raises PayloadTooLarge."""
    if len(result) > settings.payload.result_bytes_max:
        raise PayloadTooLarge(
            f"{attempt.task}: the result is {len(result)} bytes, over the bound of "
            f"{settings.payload.result_bytes_max}",
            cure="Store it and return its id, or raise payload.result_bytes_max.",
        )
    if attempt.overrides is not None:
        done = _with_options(attempt, attempt.overrides, result, settings)
    else:
        claim, seconds = attempt.claim, attempt.handler.result_seconds
        done = Outcome(claim.id, claim.claim_no, 0, result, seconds, attempt.keep)
    if attempt.spent:
        done = with_settling(done, attempt)
    return done if attempt.plan is None else attempt.plan.added_to(done)


def _with_options(
    attempt: Attempt, options: RowOptions, result: bytes, settings: Settings
) -> Outcome:
    """Return the outcome of a job that has options of its own, as nodes of plans have."""
    claim, seconds = attempt.claim, attempt.handler.result_seconds
    if options.result_seconds is not None:
        seconds = options.result_seconds
    keep, effects = attempt.keep, None
    if options.plan is not None:
        default = settings.retention.done_seconds
        keep, effects = kept_for_plan(claim, options.plan.plan, result, keep, default)
    return Outcome(*claim[:2], 0, result, seconds, keep, effects=effects)

"""Every action of the page, in the order in which they are done on one store.

Each begins at the address of its screen, looks at what the page says, and returns the line
that the audit must have; None if it changes nothing.
"""

from collections.abc import Callable

from tests.browser import access_actions as access
from tests.browser import fleet_actions as fleet
from tests.browser import job_actions as jobs
from tests.browser import queue_actions as queues
from tests.browser import schedule_actions as schedules
from tests.browser.visit import Line, Visit

Action = Callable[[Visit], Line | None]

ACTIONS: dict[str, Action] = {
    "retry": jobs.retry,
    "edit-and-retry": jobs.edit_and_retry,
    "duplicate": jobs.duplicate,
    "cancel": jobs.cancel,
    "run-now": jobs.run_now,
    "discard": jobs.discard,
    "new-job": jobs.new_job,
    "cancel-selected": jobs.cancel_selected,
    "retry-all-that-match": jobs.retry_all_that_match,
    "review-and-retry": jobs.review_and_retry,
    "review-and-discard": jobs.review_and_discard,
    "export": jobs.export,
    "pause-queue": queues.pause,
    "resume-queue": queues.resume,
    "close-queue": queues.close,
    "open-queue": queues.open_again,
    "bound-queue": queues.bound,
    "give-bound-back": queues.give_the_bound_back,
    "move-queue": queues.move,
    "purge-queue": queues.purge,
    "mute-error": fleet.mute,
    "unmute-error": fleet.unmute,
    "retry-error-group": fleet.retry_group,
    "new-schedule": schedules.create,
    "change-schedule": schedules.change,
    "pause-schedule": schedules.pause,
    "resume-schedule": schedules.resume,
    "run-schedule": schedules.run,
    "backfill": schedules.backfill,
    "reset-schedule": schedules.reset,
    "delete-schedule": schedules.delete,
    "retry-plan": fleet.retry_plan,
    "cancel-plan": fleet.cancel_plan,
    "change-limit": fleet.change_limit,
    "give-limit-back": fleet.give_limit_back,
    "open-breaker": fleet.open_breaker,
    "close-breaker": fleet.close_breaker,
    "reset-breaker": fleet.reset_breaker,
    "add-user": access.add_user,
    "change-user": access.change_user,
    "delete-user": access.delete_user,
    "create-token": access.create_token,
    "revoke-token": access.revoke_token,
    "stack": fleet.show_stack,
    "drain": fleet.drain,
    "log-out": access.log_out,
}


def perform(name: str, visit: Visit) -> None:
    """Do an action, and check its line in the audit and the faults of the page."""
    line = ACTIONS[name](visit)
    if line is not None:
        visit.check_audit(line)
    visit.watch.check()

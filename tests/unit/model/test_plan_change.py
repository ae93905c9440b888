"""What a plan in the place of a job appends, and the retention of nodes after the plan."""

import msgspec

from durio.model.job import Claim, NewJob
from durio.model.logs import ANY_END, DONE_END, FAILED_END, OnEnd
from durio.model.options import NO_OPTIONS, stored_options
from durio.model.outcome import KeepRule
from durio.model.plan_change import ADDED_FROM, inherited_ends
from durio.model.plan_kept import UNTIL_PLAN_ENDS, kept_for_plan, retentions
from durio.model.plan_payload import node_text
from durio.model.plan_place import PlanPlace

JOB = bytes.fromhex("018bcfe568007005a51cc5d900000015")
PLAN = "018bcfe5-6800-7005-a51c-c5d900000014"


def test_a_plan_appends_for_the_job_that_it_replaces():
    """Its last node appends success, each of its nodes appends a failure."""
    ends = (
        OnEnd("group", ANY_END, tag=3),
        OnEnd("next", DONE_END),
        OnEnd("collect", FAILED_END, tag=4),
        OnEnd("failures", FAILED_END),
        OnEnd("plan_ends", ANY_END),
    )
    found = inherited_ends(ends, "failures", "plan_ends")
    assert found.last == (
        OnEnd("group", DONE_END, tag=3, once=True),
        OnEnd("next", DONE_END),
    )
    assert found.failure == (
        OnEnd("group", FAILED_END, tag=3, once=True),
        OnEnd("collect", FAILED_END, tag=4),
    )


def test_nodes_get_their_own_retention_back():
    keep = KeepRule(60.0)
    entry = msgspec.json.encode(keep)
    found = retentions([(JOB.hex(), entry), (JOB.hex(), b"null"), (None, entry)])
    assert found == {keep: [JOB], None: [JOB]}


def test_a_short_retention_of_the_app_waits_for_the_plan_too():
    """The leader finds a plan by the record of its last node, and it may be late."""
    claim = Claim(JOB, 1, "shop:a", 4, "shop.a", b"", 0, 0, 0, 0, None, None)
    long, short = 86400.0, 40.0
    assert kept_for_plan(claim, PLAN, b"1", None, long) == (None, None)
    keep, effects = kept_for_plan(claim, PLAN, b"1", None, short)
    assert keep == UNTIL_PLAN_ENDS
    assert effects is not None
    ((_, (entry,), _),) = effects.appends
    assert retentions([(entry.uid, entry.body)]) == {None: [JOB]}


def test_a_message_names_a_node_by_number_or_as_added():
    for number, text in (
        (3, "node 3 (shop.a)"),
        (ADDED_FROM, "an added member (shop.a)"),
    ):
        opts = stored_options(NO_OPTIONS, "shop.a", 100, PlanPlace(PLAN, number, None))
        node = NewJob(JOB, "shop:a", 4, "shop.a", b"", opts=opts)
        assert node_text(node) == text

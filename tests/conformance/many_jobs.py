"""What a store promises about calls with many jobs, which may take a faster way."""

from durio.model.job import DONE, RUNNING, Claim
from durio.model.outcome import OutcomeKind
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, Scene, outcome

chapter = Chapter("many_jobs")


@chapter.promise("M18", "M52")
async def are_claimed_and_finished_as_each_would_be(scene: Scene) -> None:
    """Order, fields, fences and results are those of calls with one job each."""
    texts = (
        '"\\"\\\\\\u0000"',
        '"\u00e4\u20ac\U0001f333"',
        "null",
        '{"a":[1.50,"\u2028"]}',
    )
    jobs = [
        scene.job(
            priority=n % 3,
            payload=f"[{n},{texts[n % 4]}]".encode(),
            opts=b'{"key":"\xc3\xa4"}' if n % 5 == 0 else None,
            task=f"shop.task{n % 2}",
        )
        for n in range(120)
    ]
    await scene.store.enqueue(jobs)
    worker = await scene.worker()
    again = await scene.claim(worker, 40)
    for claim in again[:30]:  # so that claim numbers differ in the calls below
        await scene.finish(worker, claim, kind=OutcomeKind.RETRY)
    claims = again[30:] + await scene.claim(worker, 110)
    by_id = {job.id: job for job in jobs}
    assert len({claim.id for claim in claims}) == len(claims) == 120
    places = [(c.rank, jobs.index(by_id[c.id])) for c in claims[10:]]
    assert places == sorted(places)
    for claim in claims:
        job = by_id[claim.id]
        retried = int(claim.id in {c.id for c in again[:30]})
        assert claim == Claim(
            *(job.id, 1 + retried, LANE, job.rank, job.task, job.payload),
            *(retried, 0, 0, 0, job.opts, None),
        )
    ends = [
        outcome(c, result=c.payload, result_seconds=60.0 + n % 2)
        for n, c in enumerate(claims)
    ]
    foreign = ends[7]._replace(claim_no=ends[7].claim_no + 1)
    assert (await scene.store.exchange(worker, ends[8:], (), 0)).rejected == []
    mixed = await scene.store.exchange(worker, [*ends[:7], foreign], (), 0)
    assert [refused.id for refused in mixed.rejected] == [foreign.id]
    records = await scene.store.get([claim.id for claim in claims])
    for record in records:
        if record.id == foreign.id:
            assert (record.state, record.result) == (RUNNING, None)
        else:
            assert (record.state, record.result) == (DONE, by_id[record.id].payload)

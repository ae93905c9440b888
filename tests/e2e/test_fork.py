"""An App in processes that fork, in several loops, in threads and in plain scripts."""

import pytest

from tests.e2e.workers import Place

JOBS = 20

FORKS = """
import asyncio, os
from tests.e2e.jobs import app
from tests.e2e.ledger import note

def enqueue(jobs):
    for _ in range(jobs):
        note("enq.ok", app.enqueue_sync("nothing").id)

enqueue({jobs})                   # the parent has used the App: it is open
child = os.fork()
enqueue({jobs})                   # both go on, at the same time
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
enqueue({jobs})
"""

LOOPS = """
import asyncio, threading
from tests.e2e.jobs import app
from tests.e2e.ledger import note

async def enqueue():
    note("enq.ok", (await app.enqueue("nothing")).id)

def enqueue_sync():
    note("enq.ok", app.enqueue_sync("nothing").id)

asyncio.run(enqueue())            # two loops, one after the other
asyncio.run(enqueue())
enqueue_sync()                    # a plain script
threads = [threading.Thread(target=enqueue_sync) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

async def beside():               # a thread beside a running loop
    await asyncio.gather(enqueue(), asyncio.to_thread(enqueue_sync))

asyncio.run(beside())
"""


@pytest.mark.proves("M98")
@pytest.mark.parametrize(
    ("script", "jobs"),
    [(FORKS.format(jobs=JOBS), 4 * JOBS), (LOOPS, 9)],
    ids=["fork", "loops"],
)
def test_every_way_to_enqueue_stores_its_jobs(
    place: Place, script: str, jobs: int
) -> None:
    process = place.run_script(script)
    assert process.ended() == 0, process.log
    ids = place.ledger.jobs("enq.ok")
    assert len(ids) == jobs
    assert set(place.rows()) == ids
    assert place.check("quick_check") == ["ok"]
    place.worker()
    place.check_all_done(list(ids), 30)

"""The short statement by which an idle worker claims on PostgreSQL."""

from durio.model.keys import while_waiting
from durio.ports.exchange import Exchanged, Lane
from durio.stores.postgres.exchange import CLAIM_IDLE, EXCHANGE
from durio.stores.postgres.statements import SchemaStatements
from durio.stores.postgres.store import PostgresStore
from tests.conformance.postgres import ScratchSchema
from tests.unit.stores.test_postgres_enqueue import INFO, LANE, new_job
from tests.unit.stores.two_stores import run_on_two_stores

KEYS = "select count(*) from {schema}.uniq"


class Claims:
    """A worker that claims, and the statements that this took."""

    def __init__(self, store: PostgresStore, worker: int) -> None:
        self.store = store
        self.worker = worker
        self.statements: list[str] = []

    async def claim(self, *lanes: Lane) -> Exchanged:
        connections, self.statements = self.store.context.connections, []
        connections.on_statement = self.statements.append
        try:
            return await self.store.exchange(self.worker, [], lanes, 10)
        finally:
            connections.on_statement = None

    def used(self, *names: str) -> bool:
        """Whether these were sent, each in a transaction of its own."""
        texts = SchemaStatements(self.store.context.location.schema)
        sent = [text for name in names for text in (texts[name], "commit")]
        return self.statements == sent


def test_a_woken_worker_claims_by_the_short_statement(grounds: ScratchSchema) -> None:
    async def story(store: PostgresStore, other: PostgresStore) -> None:
        claims = Claims(store, await store.register(INFO, 60.0))
        lane = Lane(LANE, 10)
        assert (await claims.claim(lane)).claims == []
        assert claims.used(CLAIM_IDLE)
        first, second = new_job(), new_job(rank=1)
        await store.enqueue([first, second])
        found = (await claims.claim(lane)).claims
        assert [(c.id, c.claim_no) for c in found] == [(second.id, 1), (first.id, 1)]
        assert claims.used(CLAIM_IDLE)
        await claims.claim(lane, Lane("shop:other", 10))
        assert claims.used(EXCHANGE)
        # Jobs under a bound are counted, which the short statement does not do.
        await other.declare({LANE: 5})
        await store.enqueue([new_job()])
        assert len((await claims.claim(lane)).claims) == 1
        await store.enqueue([new_job()])
        assert len((await claims.claim(lane)).claims) == 1
        assert claims.used(EXCHANGE), "the bound is known now"

    run_on_two_stores(grounds, story)


def test_a_due_job_is_claimed_by_the_same_call(grounds: ScratchSchema) -> None:
    async def story(store: PostgresStore, _other: PostgresStore) -> None:
        claims = Claims(store, await store.register(INFO, 60.0))
        job = new_job(delay_seconds=0.001)
        await store.enqueue([job])
        answer = await claims.claim(Lane(LANE, 10))
        while not answer.claims:
            answer = await claims.claim(Lane(LANE, 10))
        assert [claim.id for claim in answer.claims] == [job.id]

    run_on_two_stores(grounds, story)


def test_a_key_that_holds_while_waiting_is_freed(grounds: ScratchSchema) -> None:
    async def story(store: PostgresStore, _other: PostgresStore) -> None:
        claims = Claims(store, await store.register(INFO, 60.0))
        await store.enqueue([new_job(while_waiting)])
        assert (await store.context.connections.read(KEYS))[0][0] == 1
        assert len((await claims.claim(Lane(LANE, 10))).claims) == 1
        assert (await store.context.connections.read(KEYS))[0][0] == 0

    run_on_two_stores(grounds, story)

"""`postgresql://...` names this store: see place.py for what a URL may say."""

from durio.model.settings import Settings
from durio.ports.clock import Clock
from durio.stores.postgres.place import place_of
from durio.stores.postgres.store import PostgresStore


def store_at(
    url: str, clock: Clock, settings: Settings, _folder: str = ""
) -> PostgresStore:
    """The PostgreSQL store that the URL names, not opened yet."""
    return PostgresStore(place_of(url), clock, retention=settings.retention)

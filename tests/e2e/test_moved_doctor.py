"""`durio doctor` on a file whose jobs have moved: nobody is asked to work there."""

import json

from tests.conformance.postgres import ScratchSchema
from tests.e2e.workers import Place

LATE_SECONDS = 40.0
FOUND_ERRORS = 8


def test_only_the_move_is_told(place: Place, grounds: ScratchSchema) -> None:
    place.enqueue("nothing", ())
    move = place.run("durio", "move", place.url, grounds.url, "--yes", "--json")
    assert move.ended(LATE_SECONDS) == 0, move.log
    doctor = place.run("durio", "doctor", "--json")
    assert doctor.ended(LATE_SECONDS) == FOUND_ERRORS, doctor.log
    checks = json.loads(doctor.log.splitlines()[-1])["checks"]
    errors = {check["name"] for check in checks if check["severity"] == "error"}
    assert errors == {"store.move"}
    assert not any(check["name"].startswith("queues.") for check in checks)

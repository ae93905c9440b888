"""The admin API answers as its document says, whatever it is asked; `make fuzz-api` asks more.

The seed is fixed: a failure here is not one of chance.
"""

import json
from pathlib import Path

import pytest

from durio.web.api.routers import PREFIX, ROUTERS
from durio.web.roles import checked_routes
from tests.fuzz_api import LEFT_OUT, attack, document, running_dashboard

CASES_MAX = "20"  # of each operation
SEED = "20"
CHOICES = ("--phases", "examples,coverage", "--max-examples", CASES_MAX, "--seed", SEED)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["--include-method", "--exclude-method"])
def test_every_operation_answers_as_the_document_says(tmp_path: Path, which: str):
    with running_dashboard(tmp_path) as found:
        paths = json.loads(found.document.read_text())["paths"].values()
        with attack(found, *CHOICES, which, "GET") as running:
            said, _ = running.communicate()
    methods = [method for operations in paths for method in operations]
    reading = methods.count("get")
    asked = reading if which == "--include-method" else len(methods) - reading
    assert running.returncode == 0, f"{said}\n{found.log.read_text()[-5000:]}"
    assert f"Tested: {asked}\n" in said


def test_the_document_has_all_routes_that_are_not_left_out():
    routes = {each.path for each in checked_routes(ROUTERS, PREFIX)}
    assert routes.difference(LEFT_OUT) == set(document()["paths"])

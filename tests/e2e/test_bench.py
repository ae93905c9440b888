"""`durio bench`: every figure is there, a store in use is left alone, files are removed.

How fast it is on this machine is nobody's business here: no test looks at a figure's size.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from durio.bench.raw_sqlite import BATCH, measure_raw_sqlite

SECONDS_MAX = 100
SMALL = ["--jobs", "300", "--wakeups", "5", "--idle-seconds", "0.2"]
FIGURES = {
    "enqueue_one_per_s",
    "enqueue_many_per_s",
    "drain_per_s",
    "raw_cycle_per_s",
    "drain_vs_raw",
    "cpu_us_per_job",
    "worker_rss_mb",
    "idle_cpu_percent",
}


def run(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "durio", "bench", *SMALL, *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


def test_every_figure_is_there(tmp_path: Path) -> None:
    answer = run(tmp_path, "--json")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    told = json.loads(answer.stdout)
    assert told["jobs"] == 300
    assert told["store"]
    assert all(told[name] > 0 for name in FIGURES), told
    assert set(told["latency_ms"]) == {"p50", "p95", "p99"}
    assert told["latency_from"]
    assert not list(tmp_path.iterdir()), "the bench leaves files behind"


def test_cpu_time_alone(tmp_path: Path) -> None:
    answer = run(tmp_path, "--cpu", "--passes", "2", "--json")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    figures = json.loads(answer.stdout)
    assert figures["passes"] == 2
    costs = figures["cpu_us_per_job"]
    assert set(costs) == {"drain", "enqueue_many", "enqueue_concurrent"}
    assert costs["drain"]["worker"] > 0
    assert costs["enqueue_many"]["client"] > 0
    assert costs["enqueue_concurrent"]["client"] > 0
    assert {cost["server"] for cost in costs.values()} == {None}, "no server"
    assert figures["latency_ms"]["p50"]
    assert "raw_cycle_per_s" not in figures
    assert not list(tmp_path.iterdir()), "the bench leaves files behind"


PLAN_FIGURES = {"jobs_per_s", "chains_per_s", "chords_per_s"}


def test_plans_beside_jobs(tmp_path: Path) -> None:
    plans = ["--scenario", "plans"]
    answer = run(tmp_path, *plans, "--seconds", "0.2", "--json")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    figures = json.loads(answer.stdout)
    assert all(figures[name] > 0 for name in PLAN_FIGURES), figures
    assert figures["chains_cpu_us"]["worker"] > 0
    assert figures["chains_unmarked"] >= 0
    assert not list(tmp_path.iterdir()), "the bench leaves files behind"
    refused = run(tmp_path, *plans, "--cpu")
    assert refused.returncode == 2
    assert "exclude each other" in refused.stderr


def test_a_store_with_jobs_is_left_alone(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'mine.db'}"
    first = run(tmp_path, "--store", store)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "drain_vs_raw" in first.stdout
    again = run(tmp_path, "--store", store)
    assert again.returncode == 2
    assert "already holds jobs" in again.stderr
    told = run(tmp_path, "--store", store, "--yes", "--json")
    assert told.returncode == 0, told.stdout + told.stderr
    assert json.loads(told.stdout)["store"] == store


def test_a_store_in_memory_is_refused(tmp_path: Path) -> None:
    answer = run(tmp_path, "--store", "sqlite:///:memory:")
    assert answer.returncode == 2
    assert "exists in one process only" in answer.stderr


@pytest.mark.parametrize("jobs", [1, BATCH, 2 * BATCH + 50])
def test_bare_driver_finishes_every_job(tmp_path: Path, jobs: int) -> None:
    cycle, drain = measure_raw_sqlite(tmp_path / "bare.db", jobs, "full")
    assert 0 < cycle < drain

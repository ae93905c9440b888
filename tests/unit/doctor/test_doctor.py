"""`durio doctor` finds each problem that is planted here, and says what to do about it."""

import asyncio
import fcntl
import os
import resource
import socket
import subprocess  # noqa: TID251 - another program holds the file
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from durio import App, Retry
from durio.doctor import machine, queues
from durio.doctor.examine import examine, run_checks
from durio.model.errors import StoreUnavailable
from durio.model.finding import Finding, fine
from durio.model.ids import uuid7
from durio.model.options import NO_OPTIONS
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.control import AuditNote, QueueChange
from durio.ports.exchange import Lane
from durio.ports.lease import WorkerInfo
from durio.ports.move import ExportStage, MoveMark
from durio.ports.store import Store
from durio.stores.sqlite import checks, store_files
from durio.stores.sqlite.export_jobs import export_jobs_from
from durio.testing.clock import VirtualClock, run_virtual
from durio.worker.register import task_puts

pytestmark = pytest.mark.slow  # real processes, servers or seconds

HERE = socket.gethostname()


class DoctorHarness:
    """A store in a folder, and a doctor for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"

    def app(self, **options: Any) -> App:
        return App(self.url, name="shop", **options)

    def make(self) -> None:
        """A healthy store."""

        async def main() -> None:
            async with self.app():
                pass

        asyncio.run(main())

    def findings(
        self, app: App | None = None, *, has_code: bool = False, is_named: bool = True
    ) -> list[Finding]:
        patient = app or self.app()

        async def main() -> list[Finding]:
            try:
                return await examine(patient, has_code=has_code, is_named=is_named)
            finally:
                await patient.close()

        return asyncio.run(main())

    def found(self, name: str, app: App | None = None, **known: bool) -> list[Finding]:
        return [f for f in self.findings(app, **known) if f.name == name]

    def one(self, name: str, app: App | None = None, **known: bool) -> Finding:
        (finding,) = self.found(name, app, **known)
        return finding

    def with_store(self, plant: Callable[[App, Store], Any]) -> None:
        """Put something into the store."""

        async def main() -> None:
            async with self.app() as app:
                await plant(app, await app.store())

        asyncio.run(main())


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DoctorHarness:
    monkeypatch.chdir(tmp_path)
    return DoctorHarness(tmp_path)


def bad(finding: Finding, severity: str, *words: str) -> None:
    assert finding.severity == severity, finding
    assert finding.fix, finding
    for word in words:
        assert word in finding.evidence, finding


def worker(queues: tuple[str, ...] | None = None, **changed: Any) -> WorkerInfo:
    known: dict[str, Any] = {
        "namespace": "shop",
        "name": f"{HERE}/1",
        "host": HERE,
        "pid": 1,
        "queues": queues,
        "concurrency": 1,
        "version": machine.__version__,
    }
    return WorkerInfo(**{**known, **changed})


# --- what is healthy


@pytest.mark.proves("M214")
def test_a_healthy_place_has_no_errors(clinic: DoctorHarness) -> None:
    async def plant(_app: App, store: Store) -> None:
        await store.register(worker(), 60)

    clinic.with_store(plant)
    app = clinic.app()

    @app.task(name="mail")
    async def mail() -> None: ...

    findings = clinic.findings(app, has_code=True)
    errors = [f for f in findings if f.severity == "error"]
    assert not errors
    assert {f.group for f in findings} == {
        *("machine", "settings", "store", "code", "queues", "workers")
    }
    assert all(f.evidence for f in findings)


def test_nothing_is_written(clinic: DoctorHarness) -> None:
    """Neither into the store nor beside it, and no scratch file stays."""

    async def plant(app: App, _store: Store) -> None:
        await app.enqueue("shop.anything")

    clinic.with_store(plant)

    def everything() -> dict[str, bytes]:
        kept = (p for p in clinic.folder.rglob("*") if p.is_file())
        # Shared memory and lock signatures are no content.
        return {
            p.name: p.read_bytes()
            for p in kept
            if p.suffix in {".db", ".db-wal"} or ".durio-doctor" in p.name
        }

    before = everything()
    clinic.findings()
    assert everything() == before


def test_a_missing_store_is_not_made(clinic: DoctorHarness) -> None:
    bad(clinic.one("store.schema"), "warning", "no store yet")
    assert list(clinic.folder.iterdir()) == []


def test_a_check_that_fails_is_a_finding() -> None:
    def broken() -> Iterator[Finding]:
        yield fine("a.b", "so far so good")
        raise ZeroDivisionError("oops")

    def refused() -> Iterator[Finding]:
        raise StoreUnavailable("away", cure="Wait.")

    checks = run_checks({"a.b": broken, "a.c": refused})
    first, second, third = asyncio.run(checks)
    assert first.severity == "ok"
    bad(second, "error", "check itself failed", "ZeroDivisionError", "oops")
    bad(third, "error", "away")


def test_a_store_that_does_not_open_is_a_finding(
    clinic: DoctorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinic.make()
    app = clinic.app()

    async def away() -> Store:
        raise StoreUnavailable("away", cure="Wait.")

    monkeypatch.setattr(app, "store", away)
    bad(clinic.one("store.content", app), "error", "away")


def test_a_url_that_names_no_store(clinic: DoctorHarness) -> None:
    finding = clinic.one("store.url", App("mysql://me:secret@x/y"))
    bad(finding, "error", "mysql://me:***@x/y")


# --- the machine


def test_a_clock_that_was_never_set() -> None:
    async def main(clock: VirtualClock) -> None:
        await asyncio.sleep(0)  # noqa: TID251 - any await will do
        monkey = type("Early", (), {"now": lambda _self: 12.0})()
        (finding,) = machine.clock(monkey)
        bad(finding, "error", "12 s since 1970")
        (healthy,) = machine.clock(clock)
        assert healthy.severity == "ok"

    run_virtual(main)


def test_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, 4096))
    (finding,) = machine.open_files()
    bad(finding, "warning", "256 open files")
    assert "4096" in finding.fix


def test_missing_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ZONES", ("UTC", "Mars/Olympus_Mons"))
    (finding,) = machine.time_zones()
    bad(finding, "warning", "Mars/Olympus_Mons")


# --- settings


@pytest.mark.proves("M214")
def test_a_lease_that_is_too_short(clinic: DoctorHarness) -> None:
    brisk = {"lease_seconds": 3, "heartbeat_seconds": 0.5}
    app = clinic.app(settings={"worker": brisk})
    bad(clinic.one("settings.heartbeat", app), "warning", "a slow disk")


@pytest.mark.proves("M214")
@pytest.mark.parametrize(
    ("seconds", "count", "severity"), [(0, 0, "error"), (60, 500, "warning")]
)
def test_dead_letters_that_are_off(
    clinic: DoctorHarness, seconds: int, count: int, severity: str
) -> None:
    kept = {"dead_seconds": seconds, "dead_count": count}
    app = clinic.app(settings={"retention": kept})
    bad(clinic.one("settings.dead_letters", app), severity)


# --- the store's place


def test_an_old_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.46.1")
    (finding,) = checks.library()
    bad(finding, "error", "3.46.1")


def test_a_store_in_memory(clinic: DoctorHarness) -> None:
    bad(clinic.one("store.place", App("sqlite:///:memory:")), "warning", "in memory")


@pytest.mark.parametrize(
    ("kind", "severity"),
    [("nfs4", "error"), ("overlay", "warning"), ("tmpfs", "warning")],
)
def test_a_file_system_that_does_not_keep_it(
    clinic: DoctorHarness, monkeypatch: pytest.MonkeyPatch, kind: str, severity: str
) -> None:
    device = clinic.folder.stat().st_dev
    mounts = clinic.folder / "mounts"
    line = f"1 1 {os.major(device)}:{os.minor(device)} / / rw - {kind} x rw\n"
    mounts.write_text(line, encoding="utf-8")
    monkeypatch.setattr(store_files, "MOUNTS", mounts)
    (finding,) = checks.place(clinic.path)
    bad(finding, severity, kind)


def test_a_folder_that_is_not_there(clinic: DoctorHarness) -> None:
    finding = clinic.one("store.place", App(f"sqlite:///{clinic.folder}/no/jobs.db"))
    bad(finding, "error", "there is no folder")


def test_a_store_that_is_a_folder(clinic: DoctorHarness) -> None:
    clinic.path.mkdir()
    bad(clinic.one("store.place"), "error", "is not a file")


def test_a_store_with_two_names(clinic: DoctorHarness) -> None:
    clinic.make()
    os.link(clinic.path, clinic.folder / "twin.db")
    bad(clinic.one("store.place"), "error", "hard-linked")


def test_a_file_that_everybody_may_write(clinic: DoctorHarness) -> None:
    clinic.make()
    clinic.path.chmod(0o666)
    bad(clinic.one("store.rights"), "error", "every user may write")


def test_a_private_folder_that_is_not_private(clinic: DoctorHarness) -> None:
    clinic.make()
    Path(f"{clinic.path}-durio").chmod(0o755)
    bad(clinic.one("store.rights"), "error", "not private", "755")


def test_a_folder_that_cannot_be_written(
    clinic: DoctorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinic.make()
    monkeypatch.setattr(os, "access", lambda *_asked: False)
    findings = clinic.found("store.rights")
    assert any("may not write in" in f.evidence for f in findings)
    assert any(f.evidence.endswith("jobs.db") for f in findings)
    assert all(f.severity == "error" and f.fix for f in findings)
    assert not clinic.found("store.fsync")


def test_files_that_another_user_left(clinic: DoctorHarness, require: Any) -> None:
    """Somebody ran one command as root: now the others cannot write the log."""
    require.kernel(os.geteuid() == 0, "changing owners")
    clinic.make()
    log = Path(f"{clinic.path}-wal")
    log.touch()
    os.chown(log, 12345, -1)
    bad(clinic.one("store.rights"), "error", "belongs to user 12345")


@pytest.mark.parametrize(
    ("free", "files", "severity"),
    [(50, 100, "error"), (500, 100, "warning"), (2000, 0, "error")],
)
def test_a_disk_that_is_full(
    monkeypatch: pytest.MonkeyPatch,
    clinic: DoctorHarness,
    free: int,
    files: int,
    severity: str,
) -> None:
    real = os.statvfs(clinic.folder)
    blocks = 2**20 // real.f_frsize
    fields = list(real)[:10]
    fields[2], fields[4] = 10_000 * blocks, free * blocks  # all blocks, free ones
    fields[5], fields[7] = 1000, files
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(fields))
    (finding,) = checks.space(clinic.folder)
    bad(finding, severity)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.05, "slow"), (0.000_001, "too fast for a real sync")]
)
def test_a_disk_that_is_slow_or_lies(
    clinic: DoctorHarness, monkeypatch: pytest.MonkeyPatch, seconds: float, words: str
) -> None:
    ticks = iter(range(1000))

    class Steps:
        def monotonic(self) -> float:
            return next(ticks) * seconds

    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    (finding,) = checks.fsync(clinic.folder, Steps())  # type: ignore[arg-type]
    bad(finding, "warning", words)
    assert len(synced) == checks.SYNC_TIMES
    assert list(clinic.folder.iterdir()) == []


def test_a_writer_that_does_not_let_go(clinic: DoctorHarness) -> None:
    """The lock changes hands within milliseconds, unless its holder was stopped."""
    clinic.make()
    assert clinic.one("store.writer").severity == "ok"
    with (Path(f"{clinic.path}-durio") / "writer.lock").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(b"4711        ")
        held.flush()
        finding = clinic.one("store.writer")
    bad(finding, "error", "process 4711")
    assert "kill -CONT 4711" in finding.fix


HOLD_THE_FILE = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("begin immediate")
print("held", flush=True)
sys.stdin.readline()
"""


def test_another_program_that_keeps_the_file_locked(clinic: DoctorHarness) -> None:
    """It knows nothing of our lock: SQLite alone can tell, and knows no name."""
    clinic.make()
    before = clinic.path.read_bytes()
    stranger = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_FILE, str(clinic.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert stranger.stdout is not None
    assert stranger.stdout.readline() == b"held\n"
    try:
        finding = clinic.one("store.writer")
    finally:
        stranger.communicate(b"\n", timeout=30)
    bad(finding, "error", "a program other than Durio", str(clinic.path))
    assert clinic.one("store.writer").severity == "ok"
    assert clinic.path.read_bytes() == before


def test_a_file_that_cannot_be_asked_for_its_lock(clinic: DoctorHarness) -> None:
    clinic.make()
    clinic.path.write_text("dear diary, " * 500)
    bad(clinic.one("store.writer"), "error", "not a SQLite database")


def test_a_lock_that_changes_hands_is_no_stall(clinic: DoctorHarness) -> None:
    clinic.make()
    with (Path(f"{clinic.path}-durio") / "writer.lock").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        pids = iter(range(1000, 2000))

        class Signing:
            def monotonic(self) -> float:
                held.seek(0)
                held.write(str(next(pids)).ljust(12).encode())
                held.flush()
                return 0.0

        (finding,) = checks.writer(clinic.path, Signing())  # type: ignore[arg-type]
    assert finding.severity == "ok"


# --- the store's file


def test_a_schema_of_newer_code(clinic: DoctorHarness) -> None:
    clinic.make()
    change(clinic, "insert into migration values (99, '0099_later', 'x', 0)")
    bad(clinic.one("store.schema"), "error", "0099_later")
    assert not clinic.found("queues.unserved")  # it is not opened


def test_a_schema_of_other_code(clinic: DoctorHarness) -> None:
    clinic.make()
    change(clinic, "update migration set checksum = 'x' where number = 1")
    bad(clinic.one("store.schema"), "error", "migrations differ")


def test_a_schema_of_older_code_is_not_upgraded(clinic: DoctorHarness) -> None:
    clinic.make()
    change(clinic, "delete from migration where number = 2")
    bad(clinic.one("store.schema"), "warning", "0002_fleet not applied")
    assert not clinic.found("queues.unserved")
    assert clinic.one("store.schema").severity == "warning"


def test_a_file_that_is_no_database(clinic: DoctorHarness) -> None:
    clinic.path.write_text("no database at all, but long enough" * 100, "utf-8")
    bad(clinic.one("store.schema"), "error")
    bad(clinic.one("store.integrity"), "error")


def test_damage_inside_the_file(clinic: DoctorHarness) -> None:
    async def plant(app: App, _store: Store) -> None:
        for _ in range(200):
            await app.enqueue("shop.anything", "x" * 500)

    clinic.with_store(plant)
    change(clinic, "pragma wal_checkpoint(truncate)")
    change(clinic, "pragma journal_mode=delete")
    size = clinic.path.stat().st_size
    with clinic.path.open("r+b") as file:
        for page in range(40, size // 4096, 3):
            file.seek(page * 4096)
            file.write(b"\xff" * 64)
    bad(clinic.one("store.integrity"), "error")


def test_jobs_that_are_on_a_move_or_gone(clinic: DoctorHarness) -> None:
    clinic.make()
    assert not clinic.found("store.move"), "there is nothing to say"
    made = uuid7(1_780_000_000_000, 0, 0).hex()
    to = "postgresql://me:***@there/db?port=1"

    def planted(stage: ExportStage) -> Finding:
        async def plant(_app: App, store: Store) -> None:
            leaving = export_jobs_from(store)
            await leaving.drain(MoveMark(made, to, "draining"), by="me")
            if stage != "draining":
                assert await leaving.freeze(made) is None
                await leaving.set_stage(made, stage)

        clinic.with_store(plant)
        return clinic.one("store.move")

    again = f"durio move sqlite:///{clinic.path} '{to}'"
    when = f"to {to}, begun 2026-05-28T20:26:40Z"
    finding = planted("draining")
    bad(finding, "warning", f"a move {when}, is not finished: no worker starts")
    assert finding.fix.startswith(f"Continue: {again} (with its password).")
    finding = planted("frozen")
    bad(finding, "error", f"a move {when}, is not finished: nothing can be written")
    assert "--back-out" in finding.fix
    finding = planted("moved")
    bad(finding, "error", f"its jobs have moved {when}")
    assert f"DURIO_URL={to} " in finding.fix
    assert "--back-out" not in finding.fix


def test_a_long_look_is_cut(
    clinic: DoctorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinic.make()
    monkeypatch.setattr(checks, "QUICK_CHECK_SECONDS_MAX", -1.0)
    monkeypatch.setattr(checks, "QUICK_CHECK_STEPS", 1)
    finding = clinic.one("store.integrity")
    assert finding.severity == "ok"
    assert "no damage in" in finding.evidence


def test_a_log_that_only_grows(clinic: DoctorHarness) -> None:
    clinic.make()
    with Path(f"{clinic.path}-wal").open("ab") as file:
        file.truncate(checks.LOG_BYTES_MAX + 1)
    (finding,) = checks.log(clinic.path)
    bad(finding, "warning", "write-ahead log")


def change(clinic: DoctorHarness, sql: str) -> None:
    db = apsw.Connection(str(clinic.path))
    db.execute(sql).fetchall()
    db.close()


# --- code


@pytest.mark.proves("M214")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("code.backoff", ["shop.careless"]),
        ("code.time_limits", ["shop.careless"]),
        ("code.blocking_calls", ["time.sleep", "subprocess.run"]),
        ("code.pickle", ["pickle.loads", "test_doctor.py:"]),
        ("code.naive_times", ["datetime.now", "datetime.utcnow"]),
    ],
)
def test_patterns_in_tasks(clinic: DoctorHarness, name: str, words: list[str]) -> None:
    app = clinic.app()

    @app.task(name="careless", retry=Retry(3, base=0), timeout=None)
    async def careless() -> None:
        import pickle  # noqa: PLC0415, TID251
        import time as clock  # noqa: PLC0415
        from subprocess import run as start  # noqa: PLC0415, TID251

        clock.sleep(1)  # noqa: TID251, ASYNC251
        start(["true"], check=False)  # noqa: ASYNC221
        pickle.loads(b"")  # noqa: S301
        datetime.now()  # noqa: DTZ005, TID251
        datetime.utcnow()  # noqa: DTZ003, TID251

    bad(clinic.one(name, app, has_code=True), "warning", *words)


@pytest.mark.proves("M214")
def test_innocent_tasks(clinic: DoctorHarness) -> None:
    """Threads may block; what is awaited, or handed on, does not."""
    app = clinic.app()

    @app.task(name="in_a_thread")
    def in_a_thread() -> None:
        import time as clock  # noqa: PLC0415

        clock.sleep(1)  # noqa: TID251

    @app.task(name="careful")
    async def careful() -> str:
        import time as clock  # noqa: PLC0415

        await asyncio.to_thread(clock.sleep, 1)  # noqa: TID251
        later = lambda: clock.sleep(1)  # noqa: E731, TID251
        await asyncio.to_thread(later)  # noqa: TID251

        def inside() -> None:
            clock.sleep(1)  # noqa: TID251

        await asyncio.to_thread(inside)  # noqa: TID251
        return datetime.now(UTC).isoformat() + str(datetime.now(tz=UTC))  # noqa: TID251

    # Its source cannot be read.
    made: dict[str, Any] = {}
    exec("async def hidden(): pass", made)  # noqa: S102
    app.task(name="hidden")(made["hidden"])
    codes = [f for f in clinic.findings(app, has_code=True) if f.group == "code"]
    assert {f.severity for f in codes} == {"ok"}, codes
    assert len(codes) == 5


# --- queues


def test_a_task_that_nobody_has(clinic: DoctorHarness) -> None:
    async def plant(app: App, store: Store) -> None:
        await app.enqueue("shop.gone")
        tasks = {"shop.kept": {"queue": "default", "priority": 5, "parameters": None}}
        await store.register(worker(), 60, *task_puts("shop", tasks))

    clinic.with_store(plant)
    bad(clinic.one("queues.unknown_tasks"), "error", "shop.gone (1 waiting job)")


def test_a_task_that_only_another_worker_has(clinic: DoctorHarness) -> None:
    async def plant(app: App, store: Store) -> None:
        await app.enqueue("shop.kept")
        tasks = {"shop.kept": {"queue": "default", "priority": 5, "parameters": None}}
        await store.register(worker(), 60, *task_puts("shop", tasks))

    clinic.with_store(plant)
    assert clinic.one("queues.unknown_tasks").severity == "ok"
    app = clinic.app()

    @app.task(name="other")
    async def other() -> None: ...

    finding = clinic.one("queues.unknown_tasks", app, has_code=True)
    bad(finding, "warning", "not in this code", "shop.kept")


@pytest.mark.parametrize(
    ("served", "told"),
    [(("mail",), "no worker serves images"), (None, None), (("im*", "m*"), None)],
)
def test_a_queue_that_nobody_serves(
    clinic: DoctorHarness, served: tuple[str, ...] | None, told: str | None
) -> None:
    async def plant(app: App, store: Store) -> None:
        await named(app, "images")
        await named(app, "mail")
        await store.register(worker(served), 60)

    clinic.with_store(plant)
    finding = clinic.one("queues.unserved")
    if told is None:
        assert finding.severity == "ok"
    else:
        bad(finding, "error", told)
        assert "mail" not in finding.evidence


def test_jobs_and_no_worker_at_all(clinic: DoctorHarness) -> None:
    async def plant(app: App, _store: Store) -> None:
        await named(app, "mail")

    clinic.with_store(plant)
    finding = clinic.one("queues.unserved")
    bad(finding, "error", "mail (1 waiting job)")
    assert "durio worker" in finding.fix


def test_scheduled_jobs_of_an_unserved_queue_are_a_warning(
    clinic: DoctorHarness,
) -> None:
    async def plant(app: App, _store: Store) -> None:
        await named(app, "mail", delay="1h")

    clinic.with_store(plant)
    bad(clinic.one("queues.unserved"), "warning", "mail")


async def named(app: App, queue: str, **options: Any) -> None:
    chosen = NO_OPTIONS.with_changes({"queue": queue, **options})
    await app.enqueue_named("shop.any", (), {}, chosen)


def test_a_paused_queue_with_jobs(clinic: DoctorHarness) -> None:
    async def plant(app: App, store: Store) -> None:
        await named(app, "mail")
        await store.set_queue(
            "shop:mail", QueueChange(paused=True), AuditNote(who="me")
        )

    clinic.with_store(plant)
    bad(clinic.one("queues.held_back"), "warning", "mail is paused", "1 waiting job")
    assert "oldest" not in {f.name for f in clinic.found("queues.oldest")}


def test_a_closed_queue(clinic: DoctorHarness) -> None:
    async def plant(app: App, store: Store) -> None:
        await named(app, "mail")
        await store.set_queue(
            "shop:mail", QueueChange(closed=True), AuditNote(who="me")
        )

    clinic.with_store(plant)
    bad(clinic.one("queues.held_back"), "warning", "mail is closed")


@pytest.mark.proves("M214")
def test_a_deep_queue_without_a_bound(
    clinic: DoctorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plant(app: App, store: Store) -> None:
        for _ in range(4):
            await named(app, "mail")
            await named(app, "bound")
        await store.set_queue(
            "shop:bound", QueueChange(maxsize=10), AuditNote(who="me")
        )

    clinic.with_store(plant)
    assert clinic.one("queues.unbounded").severity == "ok"
    monkeypatch.setattr(queues, "DEEP_JOBS", 3)
    finding = clinic.one("queues.unbounded")
    bad(finding, "warning", "mail (4 jobs)")
    assert "bound (" not in finding.evidence


def test_a_job_that_waits_too_long(
    clinic: DoctorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plant(app: App, _store: Store) -> None:
        await named(app, "mail")

    clinic.with_store(plant)
    assert clinic.one("queues.oldest").severity == "ok"
    monkeypatch.setattr(queues, "OLD_SECONDS", -1.0)
    bad(clinic.one("queues.oldest"), "warning", "in mail")


def test_dead_letters_that_pile_up(
    clinic: DoctorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plant(app: App, store: Store) -> None:
        for _ in range(3):
            await named(app, "mail")
        me = await store.register(worker(), 60)
        got = await store.exchange(me, [], [Lane("shop:mail", 3)], 3)
        error = b'{"type": "SMTPServerBusy", "message": "421"}'
        outcomes = [
            Outcome(c.id, c.claim_no, OutcomeKind.DEAD, error=error, reason="exhausted")
            for c in got.claims
        ]
        await store.exchange(me, outcomes, (), 0)

    clinic.with_store(plant)
    assert clinic.one("queues.dead_letters").severity == "ok"
    monkeypatch.setattr(queues, "DEAD_MAX", 3)
    bad(
        clinic.one("queues.dead_letters"), "warning", "shop.any with SMTPServerBusy (3)"
    )


def test_a_job_from_the_future(clinic: DoctorHarness) -> None:
    async def plant(app: App, _store: Store) -> None:
        await named(app, "mail")

    clinic.with_store(plant)
    assert clinic.one("queues.clock").severity == "ok"
    change(clinic, "update job set created_at = created_at + 3600")
    bad(clinic.one("queues.clock"), "warning", "in the future")


# --- workers


def test_a_worker_whose_lease_is_over(clinic: DoctorHarness) -> None:
    async def plant(app: App, store: Store) -> None:
        await named(app, "mail")
        me = await store.register(worker(), 60)
        await store.exchange(me, [], [Lane("shop:mail", 1)], 1)

    clinic.with_store(plant)
    change(clinic, "update worker set expires_at = expires_at - 60 - 3 * 86400")
    told = f"{HERE}/1 (over for 3 d, 1 job); and no other worker is alive"
    bad(clinic.one("workers.leases"), "error", told)

    async def another(_app: App, store: Store) -> None:
        await store.register(worker(name=f"{HERE}/2"), 60)

    clinic.with_store(another)
    bad(clinic.one("workers.leases"), "warning", f"{HERE}/1")
    change(clinic, "update worker set boot = 'before' where id = 1")
    bad(clinic.one("workers.leases"), "warning", f"{HERE}/1 (over, 1 job)")


@pytest.mark.parametrize("versions", [("0.0.1", machine.__version__), ("0.0.1",)])
def test_two_releases_at_work(clinic: DoctorHarness, versions: tuple[str, ...]) -> None:
    async def plant(_app: App, store: Store) -> None:
        for version in versions:
            await store.register(worker(version=version), 60)

    clinic.with_store(plant)
    bad(clinic.one("workers.versions"), "warning", "0.0.1")


def test_workers_that_promise_different_things(clinic: DoctorHarness) -> None:
    async def plant(_app: App, store: Store) -> None:
        await store.register(worker(), 60)

    clinic.with_store(plant)
    assert clinic.one("workers.synchronous").severity == "ok"
    clinic.url += "?synchronous=normal"
    clinic.with_store(plant)
    bad(
        clinic.one("workers.synchronous"),
        "warning",
        "differ in durability",
        "normal",
        "full",
    )


def test_workers_that_do_not_wait_for_the_disk(clinic: DoctorHarness) -> None:
    async def plant(_app: App, store: Store) -> None:
        await store.register(worker(), 60)

    clinic.url += "?synchronous=normal"
    clinic.with_store(plant)
    bad(clinic.one("workers.synchronous"), "warning", "a power cut may lose")


def test_every_app_of_a_store_is_looked_at(clinic: DoctorHarness) -> None:
    async def plant(app: App, _store: Store) -> None:
        await app.enqueue("shop.any")
        await app.enqueue("bakery.any")

    clinic.with_store(plant)
    told = [f.evidence for f in clinic.found("queues.unserved", is_named=False)]
    assert len(told) == 2
    assert told[0].startswith("bakery: ")
    assert len(clinic.found("queues.unserved")) == 1

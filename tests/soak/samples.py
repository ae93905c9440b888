"""One sample: the workers' memory and descriptors, the file, the throughput."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from durio.host.processes import cpu_seconds_of, own_cpu_seconds, rss_bytes_of
from tests.figures import percentile
from tests.soak.nemesis import Slot
from tests.soak.record import Sample, Vitals
from tests.soak.tally import Fresh, Tally


class Sampler:
    def __init__(self, database: Path, tally: Tally) -> None:
        self._database, self._tally = database, tally
        self._last = 0.0
        self._cpu = Cpu()

    def take(
        self, now: float, workers: Sequence[Slot], producers: Sequence[Slot]
    ) -> Sample:
        fresh = self._tally.look()
        seconds, self._last = now - self._last, now
        waits = [1000 * seconds for seconds in fresh.waits]
        found = (self._vitals(now, slot, fresh) for slot in workers)
        pids = [slot.process.pid for slot in (*workers, *producers)]
        own, others = self._cpu.take(pids)
        return Sample(
            at=now,
            seconds=seconds,
            jobs_per_second=fresh.ends.total() / seconds,
            backlog=len(self._tally.open),
            p50_ms=percentile(waits, 0.50),
            p99_ms=percentile(waits, 0.99),
            file_bytes=size_of(self._database),
            wal_bytes=size_of(Path(f"{self._database}-wal")),
            workers=[vitals for vitals in found if vitals is not None],
            own_cores=own / seconds,
            other_cores=others / seconds,
        )

    def _vitals(self, now: float, slot: Slot, fresh: Fresh) -> Vitals | None:
        pid = slot.process.pid
        rss = rss_bytes_of(pid)
        fds = descriptors_of(pid)
        is_leaving = bool(slot.expected)
        if not rss or fds is None or is_leaving or not slot.is_ready:
            return None
        return Vitals(slot.name, pid, now - slot.began, rss, fds, fresh.ends[pid])


class Cpu:
    """CPU use of the soak and of other programs: a dip may be caused by those."""

    def __init__(self) -> None:
        self._busy = busy_seconds()
        self._by_pid: dict[int, float] = {0: own_cpu_seconds()}

    def take(self, pids: Sequence[int]) -> tuple[float, float]:
        """CPU seconds of the soak and of all other processes, since the last sample."""
        now = {0: own_cpu_seconds()}  # 0: this process
        now |= {pid: cpu_seconds_of(pid) or 0.0 for pid in pids}
        own = sum(now[pid] - self._by_pid.get(pid, 0.0) for pid in now)
        busy = busy_seconds()
        others = busy - self._busy - own
        self._by_pid, self._busy = now, busy
        return max(0.0, own), max(0.0, others)


def busy_seconds() -> float:
    """Of all cores together, since the machine started; 0 if the system does not say."""
    with suppress(OSError):
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        user, nice, system, _idle, _wait, irq, soft, stolen = map(int, fields[:8])
        ticks = user + nice + system + irq + soft + stolen
        return ticks / os.sysconf("SC_CLK_TCK")
    return 0.0


def descriptors_of(pid: int) -> int | None:
    """How many descriptors a process has open; None: it has ended."""
    with suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return None


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

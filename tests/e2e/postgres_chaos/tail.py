"""The ledger as it grows: each line is read once, however long the run is."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any


class Tail:
    """The part of the ledger that the nemesis needs during the run."""

    def __init__(self, folder: Path) -> None:
        self.acknowledged = 0
        self.last_start_ns: dict[int, int] = defaultdict(int)  # by process
        self._folder = folder
        self._read: dict[Path, int] = defaultdict(int)

    def read(self) -> None:
        """Read all lines that were written since the last time."""
        for path in self._folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read[path])
                whole, _, _ = file.read().rpartition(b"\n")
            if whole:
                self._read[path] += len(whole) + 1
                for line in whole.split(b"\n"):
                    self._note(json.loads(line))

    def _note(self, line: dict[str, Any]) -> None:
        if line["ev"] == "enq.ok":
            self.acknowledged += 1
        elif line["ev"] == "start":
            pid, at = line["pid"], line["mono_ns"]
            self.last_start_ns[pid] = max(at, self.last_start_ns[pid])

"""A terminal for tests: runs commands in a folder and reads what they answer."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from durio.cli.main import commands

SHOP = """
from durio import App, Permanent, Retry

app = App("sqlite:///jobs.db", name="shop")

@app.task(retry=Retry(2, base=0.01))
async def resize(path: str, width: int = 100) -> str:
    return f"{path}.webp"

@app.task(queue="mail")
async def refuse(text: str = "no") -> None:
    raise Permanent(text)
"""


@dataclass
class Terminal:
    """A folder, and the command line in it."""

    folder: Path

    def run(self, *args: str, stdin: bytes | None = None) -> Result:
        """Whatever happens, it ends in an exit code and no exception but SystemExit."""
        result = CliRunner().invoke(commands, list(args), input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    def ok(self, *args: str) -> str:
        result = self.run(*args)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *args: str, code: int = 0) -> dict[str, Any]:
        """The one object of a command with --json."""
        result = self.run(*args, "--json")
        assert result.exit_code == code, result.output
        assert result.stdout.count("\n") == 1
        return json.loads(result.stdout)

    def error(self, *args: str, code: int) -> dict[str, Any]:
        return self.json(*args, code=code)["error"]

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

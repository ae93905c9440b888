"""Attacks on hosts, senders, bodies, proxies and paths."""

import json
from typing import Any

import pytest

from durio import App
from durio.web import User
from durio.web.application import DashboardApplication
from tests.unit.app.app_harness import virtual
from tests.web.browser import HOST, browser, dashboard
from tests.web.logins import add_users, log_in

ADMIN = User("ann", "admin")
RETRY = "/admin/jobs/0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55/retry"
NOT_FOUND = (404, "job_not_found")  # past the guard
Header = tuple[bytes, bytes]


async def asked(
    served: DashboardApplication,
    headers: list[Header],
    *,
    path: str = "/admin/me",
    method: str = "GET",
    body: bytes = b"",
    **scope: Any,
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Send what no client library would; return status, headers and body."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    full = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": headers,
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "client": ("192.0.2.7", 4711),
        **scope,
    }
    await served(full, receive, send)
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), content


async def code_of(served: DashboardApplication, headers: list[Header], **scope: Any):
    status, _, body = await asked(served, headers, **scope)
    return status, json.loads(body).get("code", "ok")


# --- hosts


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [b"dash.example.com", b"evil.example.com"],
        [b"dash.example.com", b"dash.example.com"],
        [b"ann@dash.example.com"],
        [b"dash.example.com/x"],
        [b"dash.example.com, evil.example.com"],
        [b"dash.example.com:port"],
        [b""],
        [b"[::1"],
        [b"dash.example.com\x00"],
    ],
)
def test_a_host_header_that_is_none(hosts: list[bytes]):
    @virtual(name="shop")
    async def ask(app: App):
        served = dashboard(app, ADMIN)
        headers = [(b"host", host) for host in hosts]
        assert await code_of(served, headers) == (400, "invalid_host")

    ask()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("dash.example.com", 200),
        ("DASH.example.com", 200),
        ("dash.example.com:8443", 200),
        ("a.jobs.example.com", 200),
        ("jobs.example.com", 421),
        ("evil.example.com", 421),
        ("dash.example.com.evil.example.com", 421),
        ("192.0.2.9", 421),
    ],
)
def test_only_allowed_hosts_are_answered(host: str, status: int):
    @virtual(name="shop")
    async def ask(app: App):
        hosts = ("dash.example.com", "*.jobs.example.com")
        served = dashboard(app, ADMIN, allowed_hosts=hosts)
        async with browser(served, host=host) as client:
            assert (await client.get("/admin/me")).status_code == status
            assert (await client.get("/")).status_code == status
            assert (await client.get("/livez")).status_code == 200  # of a probe

    ask()


@pytest.mark.parametrize(
    ("host", "address", "status"),
    [
        ("localhost:7700", "127.0.0.1", 200),
        ("127.0.0.1:7700", "127.0.0.1", 200),
        ("[::1]:7700", "::1", 200),
        ("rebound.example.com:7700", "127.0.0.1", 421),
        ("localhost:7701", "127.0.0.1", 421),
        ("localhost", "127.0.0.1", 421),
        ("localhost:7700", "192.0.2.7", 401),
    ],
)
def test_dev_answers_this_machine_alone(host: str, address: str, status: int):
    """Also after DNS rebinding: the browser sends the name that it asked for."""

    @virtual(name="shop")
    async def ask(app: App):
        served = dashboard(app, is_dev=True)
        async with browser(served, host=host, address=address) as client:
            assert (await client.get("/admin/me")).status_code == status
            foreign = {"Sec-Fetch-Site": "cross-site"}
            answer = await client.post(RETRY, json={}, headers=foreign)
            assert answer.status_code == (403 if status == 200 else status)

    ask()


# --- senders


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, NOT_FOUND),
        ({"Sec-Fetch-Site": "", "Origin": f"http://{HOST}"}, NOT_FOUND),
        ({"Sec-Fetch-Site": "same-site"}, (403, "cross_site")),
        ({"Sec-Fetch-Site": "none"}, (403, "cross_site")),
        (
            {"Sec-Fetch-Site": "cross-site", "Origin": f"http://{HOST}"},
            (403, "cross_site"),
        ),
        ({"Sec-Fetch-Site": ""}, (403, "cross_site")),
        ({"Sec-Fetch-Site": "", "Origin": f"https://{HOST}"}, (403, "cross_site")),
        ({"Sec-Fetch-Site": "", "Origin": "null"}, (403, "cross_site")),
        ({"Content-Type": "text/plain"}, (415, "content_type")),
        ({"Content-Type": "application/x-www-form-urlencoded"}, (415, "content_type")),
        ({"Content-Type": "multipart/form-data; boundary=x"}, (415, "content_type")),
        ({"Content-Type": "application/jsonp"}, (415, "content_type")),
        ({"Content-Type": "application/json; charset=utf-8"}, NOT_FOUND),
        ({"Content-Encoding": "gzip"}, (415, "content_encoding")),
        ({"Content-Encoding": "identity"}, (415, "content_encoding")),
    ],
)
def test_a_change_comes_from_our_page_as_json(
    headers: dict[str, str], wanted: tuple[int, str]
):
    @virtual(name="shop")
    async def ask(app: App):
        await add_users(app)
        async with browser(dashboard(app)) as client:
            await log_in(client)
            sent = {"Content-Type": "application/json", **headers}
            request = client.build_request("POST", RETRY, content=b"{}", headers=sent)
            if headers.get("Sec-Fetch-Site") == "":
                del request.headers["Sec-Fetch-Site"]
            answer = await client.send(request)
            assert (answer.status_code, answer.json()["code"]) == wanted

    ask()


@virtual(name="shop")
async def test_reading_changes_nothing(app: App):
    """A GET needs no proof of its sender, and there is no other safe method."""
    async with browser(dashboard(app, ADMIN)) as client:
        foreign = {"Sec-Fetch-Site": "cross-site"}
        assert (await client.get("/admin/me", headers=foreign)).status_code == 200
        for method in ("OPTIONS", "TRACE", "CONNECT", "PROPFIND"):
            assert (await client.request(method, "/admin/me")).status_code == 405


# --- bodies


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{}", 404),
        (b"{" + b" " * (1024 * 1024 + 64 * 1024 - 2) + b"}", 404),
        (b"{" + b" " * (1024 * 1024 + 64 * 1024 - 1) + b"}", 413),
        (b'{"a": 1, "a": 2}', 400),
        (b'{"a": {"b": 1, "b": 1}}', 400),
        (b'{"a": NaN}', 400),
        (b'{"a": -Infinity}', 400),
        (b"{'a': 1}", 400),
        (b'{"a": 1}x', 400),
        (b'{"a": "\xff"}', 400),
        (b'{"a": ' + b"[" * 63 + b"]" * 63 + b"}", 422),  # an unknown field
        (b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", 400),
        (b"[" * 1_000_000, 400),
        (b'"' + b'\\"' * 500_000, 400),
        (b'{"a": "' + b"\\" * 999_999, 400),
        (b'{"a": "' + b"[" * 1000 + b'\\""}', 422),
        (b"", 422),
        (b"[]", 422),
    ],
)
def test_bodies_are_strict_json(body: bytes, status: int):
    @virtual(name="shop")
    async def ask(app: App):
        async with browser(dashboard(app, ADMIN)) as client:
            kind = {"Content-Type": "application/json"}
            answer = await client.post(RETRY, content=body, headers=kind)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"

    ask()


@pytest.mark.parametrize(
    ("length", "wanted"),
    [
        (b"99999999999999999999999999", (413, "body_too_large")),
        (b"-1", (400, "invalid_length")),
        (b"ten", (400, "invalid_length")),
    ],
)
def test_a_length_that_cannot_be(length: bytes, wanted: tuple[int, str]):
    @virtual(name="shop")
    async def ask(app: App):
        headers = [
            (b"host", b"dash.example.com"),
            (b"sec-fetch-site", b"same-origin"),
            (b"content-type", b"application/json"),
            (b"content-length", length),
        ]
        served = dashboard(app, ADMIN)
        assert await code_of(served, headers, path=RETRY, method="POST") == wanted

    ask()


# --- proxies


@pytest.mark.parametrize(
    ("trusted", "forwarded", "address"),
    [
        ((), "203.0.113.5", "192.0.2.7"),  # anybody can send the header
        (("198.51.100.1",), "203.0.113.5", "192.0.2.7"),
        (("192.0.2.0/24",), "203.0.113.5", "203.0.113.5"),
        (("192.0.2.0/24",), "1.2.3.4, 203.0.113.5, 192.0.2.8", "203.0.113.5"),
        (("192.0.2.0/24",), "evil, 203.0.113.5", "203.0.113.5"),
        (("192.0.2.0/24",), "203.0.113.5, <script>", "192.0.2.7"),
        (("192.0.2.0/24",), "", "192.0.2.7"),
        (("192.0.2.0/24",), "::ffff:203.0.113.5", "203.0.113.5"),
        (("192.0.2.0/24",), "2001:db8::1", "2001:db8::1"),
    ],
)
def test_forwarded_addresses_count_from_trusted_proxies(
    trusted: tuple[str, ...], forwarded: str, address: str
):
    @virtual(name="shop")
    async def ask(app: App):
        job = await app.named("send").enqueue()
        await job.cancel()
        served = dashboard(app, ADMIN, trusted_proxies=trusted)
        proxied = {
            "X-Forwarded-For": forwarded,
            "X-Forwarded-Host": "other.example.com",
        }
        async with browser(served, headers=proxied) as client:
            answer = await client.post(f"/admin/jobs/{job.id}/retry", json={})
            assert answer.status_code == 200
        (line,) = await (await app.store()).audit("shop", limit=1)
        assert line.who == f"ann@{address} via dashboard"
        assert (line.read_details() or {})["address"] == address

    ask()


@virtual(name="shop")
async def test_a_forwarded_host_counts_from_trusted_proxies(app: App):
    proxied = {"X-Forwarded-Host": "jobs.example.com"}
    hosts = ("jobs.example.com",)
    for trusted, status in (((), 421), (("192.0.2.7",), 200)):
        served = dashboard(app, ADMIN, allowed_hosts=hosts, trusted_proxies=trusted)
        async with browser(served, headers=proxied) as client:
            assert (await client.get("/admin/me")).status_code == status


# --- paths


@pytest.mark.parametrize(
    ("root", "base"),
    [
        ("", "/"),
        ("/x/y", "/x/y/"),
        ("/x/y/", "/x/y/"),
        ('/a"><script>', "/a%22%3E%3Cscript%3E/"),
        ("/a'b&c", "/a%27b&amp;c/"),
        ("/a/../b", "/"),
        ("//evil.example.com", "/"),
        ("/\\evil.example.com", "/"),
        ("/a\nb", "/"),
        ("https://evil.example.com", "/"),
    ],
)
def test_the_base_is_the_root_path_escaped(root: str, base: str):
    @virtual(name="shop")
    async def ask(app: App):
        headers = [(b"host", b"dash.example.com")]
        path = f"{root.rstrip('/')}/jobs"
        status, _, body = await asked(
            dashboard(app), headers, path=path, root_path=root
        )
        assert status == 200
        assert f'<base href="{base}">'.encode() in body
        assert body.count(b"<base") == 1

    ask()


@pytest.mark.parametrize("path", ["/x/y/admin/me", "/admin/me"])
def test_a_configured_root_path_may_be_stripped_or_not(path: str):
    @virtual(name="shop")
    async def ask(app: App):
        served = dashboard(app, ADMIN, root_path="/x/y")
        status, _, _ = await asked(served, [(b"host", b"dash.example.com")], path=path)
        assert status == 200
        _, _, body = await asked(served, [(b"host", b"dash.example.com")], path="/x/y")
        assert b'<base href="/x/y/">' in body

    ask()


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../index.html",
        "/assets/..%2findex.html",
        "/assets//etc/passwd",
        "/assets/",
    ],
)
def test_assets_are_the_files_of_the_folder(path: str):
    @virtual(name="shop")
    async def ask(app: App):
        headers = [(b"host", b"dash.example.com")]
        assert await code_of(dashboard(app), headers, path=path) == (404, "not_found")

    ask()


# --- headers


@virtual(name="shop")
async def test_every_answer_has_the_security_headers(app: App):
    async with browser(dashboard(app, ADMIN)) as client:
        asset = next(
            part
            for part in (await client.get("/")).text.split('"')
            if "assets/" in part
        )
        paths = ["/", "/jobs", "/login", "/livez", "/admin/me", "/admin/none", "/none"]
        for path in [*paths, f"/{asset.removeprefix('./')}", "/assets/none.js"]:
            answer = await client.get(path)
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cross-origin-opener-policy"] == "same-origin"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert "permissions-policy" in answer.headers
            assert "access-control-allow-origin" not in answer.headers
            cached = answer.status_code == 200 and "assets" in path
            assert (answer.headers["cache-control"] == "no-store") is not cached
        refused = await client.post(RETRY, content=b"x")
        assert "content-security-policy" in refused.headers


@virtual(name="shop")
async def test_a_page_may_be_embedded_in_named_origins(app: App):
    served = dashboard(app, embed_in=("https://ops.example.com",))
    async with browser(served) as client:
        policy = (await client.get("/")).headers["content-security-policy"]
    assert "frame-ancestors https://ops.example.com;" in policy

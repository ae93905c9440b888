"""Where the dashboard is mounted, and which of its paths a request means."""

import html
from urllib.parse import quote

from starlette.types import Scope

# Characters of a path that stay as they are in an address.
SAFE = "/:@!$&()*+,;=~-._"


def root_path(scope: Scope) -> str:
    """Return the path of the mount, without a slash at the end; empty at the root.

    What no proxy or framework would send is ignored: `..`, `//`, control characters.
    """
    root = str(scope.get("root_path") or "").rstrip("/")
    return root if is_plain(root) else ""


def is_plain(root: str) -> bool:
    if not root:
        return True
    parts = root.split("/")
    return (
        root.startswith("/")
        and all(part not in ("", ".", "..") for part in parts[1:])
        and root.isprintable()
        and "\\" not in root
    )


def path_inside(scope: Scope) -> str:
    """Return the path below the mount, with a slash at the start."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "").rstrip("/")
    if root and path.startswith(f"{root}/"):
        return path[len(root) :]
    return "/" if root and path == root else path


def with_root(scope: Scope, root: str) -> Scope:
    """Return the scope below a configured root path, whether or not a proxy strips it."""
    if not root or scope.get("root_path"):
        return scope
    path = str(scope["path"])
    if path == root or path.startswith(f"{root}/"):
        return {**scope, "root_path": root}
    return {**scope, "root_path": root, "path": root + path}


def base_address(scope: Scope) -> str:
    """Return the path of the mount for a link, percent-encoded, with a slash at the end."""
    return quote(root_path(scope), safe=SAFE) + "/"


def base_element(scope: Scope) -> str:
    """Return the `<base>` element of the page."""
    return f'<base href="{html.escape(base_address(scope), quote=True)}">'

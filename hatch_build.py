"""The package's description: the README, with links that work outside of the repository.

Links in the README are relative, so that they work in a clone and at any host. A package
index has none of these files. Once `address` is set in pyproject.toml, under
`[tool.hatch.metadata.hooks.custom]`, pages become ADDRESS/blob/main/... and pictures
ADDRESS/raw/main/... in the description. While it is empty, the README is taken as it is.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# The words of a picture may hold anything but a bracket.
LINK = re.compile(r"(?P<picture>!?)\[(?P<words>[^\]]*)\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)[ ]*$", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#|/", re.IGNORECASE)
BRANCH = "main"


class Description(MetadataHookInterface):
    """Sets the field `readme`; hatchling finds this class by its base."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Write the description into the package's metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_address(text, self.config.get("address", "")),
        }


def with_address(text: str, address: str) -> str:
    """Make relative links absolute; code blocks stay as they are."""
    if not address:
        return text

    def absolute(link: re.Match[str]) -> str:
        if ELSEWHERE.match(link["target"]):
            return link[0]
        kind = "raw" if link["picture"] else "blob"
        target = f"{address.rstrip('/')}/{kind}/{BRANCH}/{link['target']}"
        return f"{link['picture']}[{link['words']}]({target})"

    parts: list[str] = []
    end = 0
    for code in FENCE.finditer(text):
        parts += [LINK.sub(absolute, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, LINK.sub(absolute, text[end:])])

"""Prints the requirements of what the Python that runs this has installed, as JSON, for gorun --python auto."""

from __future__ import annotations

import importlib.metadata
import json
import os
import urllib.parse


def describe(distribution: importlib.metadata.Distribution) -> tuple[str, str, str]:
    """Return under which key of the answer a package comes, what comes there, and the directory of an editable one."""
    name, version = distribution.metadata["Name"], distribution.version
    direct = json.loads(distribution.read_text("direct_url.json") or "{}")
    url = direct.get("url", "")
    parts = urllib.parse.urlsplit(url)
    path = urllib.parse.unquote(parts.path)
    if direct.get("dir_info", {}).get("editable"):
        return "editable", name, path
    if parts.scheme == "file" and not os.path.exists(path):
        url = ""  # conda leaves the directory in which it has built the package
    if not url:
        return "requirements", f"{name}=={version}", ""
    if parts.scheme == "https" and path.endswith(".whl"):
        return "requirements", f"{name} @ {url}", ""
    return "foreign", f"{name} from {parts.scheme}://{parts.hostname or ''}{path}", ""


def main() -> None:
    found: dict[str, dict[str, str]] = {"requirements": {}, "editable": {}, "foreign": {}}
    for distribution in importlib.metadata.distributions():
        if distribution.metadata["Name"] not in (None, "gorun"):  # its binding is in the binary
            kind, text, place = describe(distribution)
            found[kind].setdefault(text, place)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""The scripts that build.py has made, as they are served: compressed once, known by the hash in their names.

A page embeds `/widget/TENANT.js`, the newest launcher with the tenant's config in it. One that pins a version embeds
`/widget/TENANT/loader.HASH.js`, which asks for the config. Either fetches the panel it was built with.
"""

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

BUILT = Path(__file__).parent / "static" / "built"

_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?(?:[,\s]|$))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Script:
    """One file, plain and compressed."""

    plain: bytes
    compressed: bytes


@dataclass(frozen=True, slots=True)
class Scripts:
    """All files that are served, by name, and the newest launcher's name."""

    files: Mapping[str, Script]
    loader: str

    def with_config(self, config: str) -> bytes:
        """Return the newest launcher, called with a config, which is JSON."""
        return self.files[self.loader].plain.removesuffix(b"();\n") + f"({config});\n".encode()

    def integrity(self) -> str:
        """Return the newest launcher's `integrity`."""
        return f"sha256-{self.loader.split('.')[1]}="


@cache
def scripts() -> Scripts:
    """Read what was built."""
    versions = json.loads((BUILT / "versions.json").read_text(encoding="utf-8"))
    names = [name for version in versions for name in version["files"]]
    files = {name: Script((BUILT / name).read_bytes(), (BUILT / f"{name}.gz").read_bytes()) for name in names}
    return Scripts(files, loader=next(name for name in reversed(names) if name.startswith("loader.")))


def answer_script(
    request: Request, plain: bytes, headers: Mapping[str, str], compressed: bytes | None = None
) -> Response:
    """Return a script, compressed where the browser takes that; 304 where it has it already."""
    is_compressed = _GZIP.search(request.headers.get("accept-encoding", "")) is not None
    tag = f'"{sha256(plain).hexdigest()[:32]}{"-gzip" if is_compressed else ""}"'
    told = {
        "cross-origin-resource-policy": "cross-origin",
        "x-content-type-options": "nosniff",
        "vary": "Accept-Encoding",
        "etag": tag,
        **headers,
    }
    known = request.headers.get("if-none-match", "")
    if tag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(status_code=304, headers=told)
    if is_compressed:
        packed = compressed or gzip.compress(plain, 9, mtime=0)
        return Response(packed, media_type="text/javascript", headers=told | {"content-encoding": "gzip"})
    return Response(plain, media_type="text/javascript", headers=told)

"""Makes what is served of what is read: `python -m web_widget.build` joins and minifies the sources in `static/`.

A dev tool; the service only reads what it has written to `static/built/`, each file also compressed by Zopfli, which takes
too long to do it for each request and saves a fiftieth. Each script begins at one module. Its imports are
put before it, once each, and all share one scope: the words `import` and `export` fall away, and two modules that declare
the same name are an error. Stylesheets and texts are imported too, and become constants.

There is a panel for each language, one for the page around a frame, and a launcher that knows them all by their hashes,
which are their integrity too. Files of earlier versions stay, because pages pin them; those of this version are replaced.
"""

import json
import re
import sys
import tomllib
from base64 import b64encode
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import minify
import zopfli.gzip

HERE = Path(__file__).parent
STATIC = HERE / "static"
BUILT = STATIC / "built"

_IMPORT = re.compile(r'^import (?:\{[^}]*\}|(?P<name>\w+)) from "(?P<path>[^"#]+)(?:#(?P<part>\w+))?";\n', re.MULTILINE)
_NUMBER = re.compile(r"^const ([A-Z_]+) = ([0-9_]+);", re.MULTILINE)
_DECLARED = re.compile(r"^(?:export )?(?:async )?(?:const|let|function|class) ([\w$]+)", re.MULTILINE)


def build(version: str) -> dict[str, bytes]:
    """Return the files of a version by name, with `versions.json`, which lists all versions, the newest last."""
    panels = {
        path.stem: _script(STATIC / "panel" / "main.js", language=path.stem)
        for path in sorted((STATIC / "texts").glob("*.json"))
    }
    panels["frame"] = _script(STATIC / "panel" / "frame.js")
    known = json.dumps({name: _hash(panel) for name, panel in panels.items()})
    loader = _script(STATIC / "loader.js", parameter="config", before=f"const PANELS = {known};\n")
    files = {f"panel.{_hash(panel)}.js": panel for panel in panels.values()} | {f"loader.{_hash(loader)}.js": loader}
    compressed = {f"{name}.gz": zopfli.gzip.compress(content, numiterations=100) for name, content in files.items()}
    kept = [each for each in _versions() if each["version"] != version]
    versions = [*kept, {"version": version, "files": list(files)}]
    return files | compressed | {"versions.json": (json.dumps(versions, indent=2) + "\n").encode()}


def write(version: str) -> None:
    """Write the files of a version, and delete what no version has any more."""
    BUILT.mkdir(exist_ok=True)
    for name, content in build(version).items():
        (BUILT / name).write_bytes(content)
    served = {"versions.json"}.union(*(each["files"] for each in _versions()))
    for path in BUILT.iterdir():
        if path.name.removesuffix(".gz") not in served:
            path.unlink()


def project_version() -> str:
    """Return the version in pyproject.toml."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])


def _versions() -> list[dict[str, Any]]:
    path = BUILT / "versions.json"
    listed: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return listed


def _script(entry: Path, *, parameter: str = "", before: str = "", language: str = "*") -> bytes:
    modules: dict[Path, str] = {}
    _collect(entry, modules, language)
    declared: dict[str, Path] = {}
    for path, source in modules.items():
        for name in _DECLARED.findall(source):
            if name in declared:
                raise ValueError(f"{path} and {declared[name]} both declare `{name}`: rename one, they share a scope.")
            declared[name] = path
    joined = before + "".join(re.sub(r"^export ", "", source, flags=re.MULTILINE) for source in modules.values())
    for name, number in _NUMBER.findall(joined):
        joined = re.sub(rf"\b{name}\b", number, re.sub(rf"^const {name} = .*\n", "", joined, flags=re.MULTILINE))
    # With the call at its very end, so that the service can put the config between its brackets.
    body = minify.string("application/javascript", f'({parameter})=>{{"use strict";\n{joined}}}').removesuffix(";")
    # A hash of letters and digits only can be a name as well as an integrity.
    return next(script for salt in count() if _hash(script := f"/*{salt}*/({body})();\n".encode()).isalnum())


def _collect(path: Path, modules: dict[Path, str], language: str) -> None:
    if path in modules:
        return
    modules[path] = ""  # so that two modules may import each other
    source = path.read_text(encoding="utf-8")
    before = ""
    for found in _IMPORT.finditer(source):
        target = (path.parent / found["path"]).resolve()
        if found["name"] is None:
            _collect(target, modules, language)
        elif target.suffix == ".css":
            style = minify.string("text/css", target.read_text(encoding="utf-8"))
            before += f"const {found['name']} = {json.dumps(style)};\n"
        else:
            texts = {
                each.stem: json.loads(each.read_text(encoding="utf-8"))[found["part"]]
                for each in sorted(target.parent.glob(target.name.replace("LANGUAGE", language)))
            }
            before += f"const {found['name']} = {json.dumps(texts.get(language, texts), ensure_ascii=False)};\n"
    del modules[path]
    modules[path] = before + _IMPORT.sub("", source)


def _hash(content: bytes) -> str:
    return b64encode(sha256(content).digest()).decode().removesuffix("=")


if __name__ == "__main__":
    write(project_version())
    sys.stdout.write((BUILT / "versions.json").read_text(encoding="utf-8"))

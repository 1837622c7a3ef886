#!/usr/bin/env python3
"""Prints what the program is built of, as a CycloneDX 1.5 document (JSON): each crate that is compiled into it or runs while it
is built, with version, licence, checksum and dependencies. Equal sources give equal documents.

usage: sbom.py [TARGET [FEATURES]]    TARGET is a triple of rustc, this machine's if not given; FEATURES as of cargo
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(target="", features=""):
    target = target or re.search(r"host: (\S+)", output("rustc", "-vV"))[1]
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    metadata = json.loads(output(*command, "--features", features))
    packages = {package["id"]: package for package in metadata["packages"]}
    depends = {node["id"]: dependencies(node) for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    used = sorted(reached(root, depends), key=lambda package: purl(packages[package]))
    sums = checksums((ROOT / "Cargo.lock").read_text())
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(packages[root], "application", sums)},
        "components": [component(packages[package], "library", sums) for package in used if package != root],
        "dependencies": [
            {"ref": purl(packages[package]), "dependsOn": sorted(purl(packages[other]) for other in depends[package])}
            for package in used
        ],
    }
    print(json.dumps(document, indent=1))


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def dependencies(node):
    """The packages that another one is built with: those of its tests are left out."""
    return {dep["pkg"] for dep in node["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])}


def reached(root, depends):
    found, open_ends = set(), [root]
    while open_ends:
        package = open_ends.pop()
        if package not in found:
            found.add(package)
            open_ends.extend(depends[package])
    return found


def checksums(lock):
    entry = r'name = "(.+)"\nversion = "(.+)"\n(?:source = ".+"\n)?checksum = "(.+)"'
    return {(name, version): checksum for name, version, checksum in re.findall(entry, lock)}


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, kind, sums):
    name, version = package["name"], package["version"]
    entry = {"type": kind, "bom-ref": purl(package), "name": name, "version": version, "purl": purl(package)}
    if package["license"]:
        # Before SPDX expressions, a slash separated the choices.
        entry["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
    if checksum := sums.get((name, version)):
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry


if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(print(__doc__))
    main(*sys.argv[1:])

"""Tests of a connector with the versions of its library that drift allows: the lowest, the newest, each minor between.

    .venv/bin/python tests/versions.py [PACKAGE ...] [--ends] [--turn N]

Each version is installed into an environment of its own, above that of `make test`, so that all else is as it is there.
Of what no connector needs (the page, pictures, signatures) it is the lowest and the newest. PySpark hands its data to
Arrow and pandas: each version of it is run with the lowest and the newest Arrow, each Arrow between with one PySpark,
and each pandas with each PySpark. Prints a row of a Markdown table for each, and fails if tests of one failed.
`--ends`: only the lowest and the newest.
`--turn N`: these of one package, the N-th in turn, and of its tests those that `make test` runs, without Spark. PySpark
has no turn: it is some hundred megabytes (`make versions-spark`).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
#: For each package its tests: arguments of pytest.
TESTS = {
    "duckdb": ["tests/flow/test_tables.py", "tests/rows/test_rows.py", "-k", "duckdb or relation or as_it_is"],
    "polars": ["tests/rows/test_rows.py", "tests/rows/test_schema_rows.py", "tests/rows/test_rows_read.py"],
    "pyarrow": ["tests/sinks/test_typed.py", "tests/sinks/test_sinks_parts.py", "tests/flow/test_tables.py"],
    "pandas": ["tests/flow/test_tables.py", "tests/core/test_scalars.py", "tests/core/test_moments.py"],
    "deltalake": ["tests/sinks/test_delta.py", "tests/sinks/test_lakes.py"],
    "pyiceberg": ["tests/sinks/test_iceberg.py", "tests/sinks/test_lakes.py"],
    "redis": ["tests/sources/test_sources_brokers.py", "tests/state/test_state_storage.py", "-k", "redis"],
    "confluent-kafka": [
        *("tests/sources/test_sources_brokers.py", "tests/sources/test_registry.py"),
        *("-k", "kafka or test_registry"),
    ],
    "psycopg": ["tests/sources/test_changes.py", "tests/sinks/test_sinks_refused.py"],
    "pyspark": ["tests/spark", "-k", "smoke or connect"],
}
#: The same of packages whose minor versions between are not run.
ENDS = {
    "s3fs": ["tests/sources/test_cloud.py"],
    "starlette": ["tests/command/test_web.py", "tests/command/test_stored_runs.py"],
    "uvicorn": ["tests/command/test_web.py", "tests/command/test_stored_runs.py"],
    "prometheus-client": ["tests/command/test_web.py"],
    "opentelemetry-api": ["tests/command/test_web.py", "-k", "span or counters"],
    "matplotlib": ["tests/command/test_plots.py", "-k", "plot"],
    "pygraphviz": ["tests/command/test_show.py", "tests/command/test_web.py", "tests/command/test_stored_runs.py"],
    "resvg-py": ["tests/command/test_show.py"],
    "cryptography": ["tests/records/test_records_troubles.py", "tests/records/test_records_cli.py", "-k", "sign"],
}
#: Extras with which a package is installed, and what its tests need that fits it.
WITH = {"psycopg": "binary", "confluent-kafka": "avro,json,protobuf,schemaregistry"}
#: What a package hands its data to; see `grid`.
HANDS_TO = {"pyspark": ("pyarrow", "pandas")}
BESIDE = {"opentelemetry-api": "opentelemetry-sdk=={version}", "s3fs": "aiobotocore[boto3]"}
TURNS = [package for package in (*TESTS, *ENDS) if package != "pyspark"]
#: In turn, of the tests of those above; of a package of `ENDS` all are few.
SHORT = ["-m", "not spark and (not long or smoke)"]


def allowed(package: str) -> list[Version]:
    """The newest patch of each minor version that some extra allows, and the lowest version, in order."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = [line for extra, lines in extras.items() if extra != "dev" for line in lines]
    bounds = [each for each in map(Requirement, lines) if each.name.replace("_", "-") == package]
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", package], check=True, capture_output=True, text=True
    )
    known = listed.stdout.partition("Available versions:")[2].split("\n")[0]
    found = sorted(map(Version, re.findall(r"[\d.]+\d", known)))
    found = [version for version in found if any(each.specifier.contains(version) for each in bounds)]
    newest = {version.release[:2]: version for version in found}
    return sorted({found[0], *newest.values()} if package in TESTS else {found[0], found[-1]})


def grid(package: str, versions: Sequence[Version]) -> dict[Version, list[list[str]]]:
    """For each version of a package those of the packages that it hands its data to, one list for each run."""
    if package not in HANDS_TO:
        return {version: [[]] for version in versions}
    first, second = HANDS_TO[package]
    firsts, seconds, count = allowed(first), allowed(second), len(versions)
    found: dict[Version, list[list[str]]] = {version: [] for version in versions}
    for at, other in enumerate([*[firsts[0]] * count, *[firsts[-1]] * count, *firsts[1:-1]]):
        third = seconds[(at + at // count) % len(seconds)]
        found[versions[at % count]].append([f"{first}=={other}", f"{second}=={third}"])
    return found


def environment(package: str, version: Version) -> Path:
    """Makes an environment with this version; returns its folder."""
    folder = ROOT / ".venv" / "versions" / f"{package}-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    below = sysconfig.get_path("purelib")
    (_packages(folder) / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    name = f"{package}[{WITH[package]}]" if package in WITH else package
    install(folder, f"{name}=={version}", *([BESIDE[package].format(version=version)] if package in BESIDE else []))
    return folder


def install(folder: Path, *requirements: str) -> None:
    """Installs into an environment, above what it has."""
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet", "--upgrade"]
    subprocess.run([*pip, "--target", _packages(folder), *requirements], check=True)


def _packages(folder: Path) -> Path:
    return next(folder.glob("lib/python*/site-packages"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=", ".join(TESTS | ENDS))
    parser.add_argument("--ends", action="store_true")
    parser.add_argument("--turn", type=int)
    options = parser.parse_args()
    in_turn = options.turn is not None
    packages = [TURNS[options.turn % len(TURNS)]] if in_turn else options.packages or TURNS
    failed = False
    for package in packages:
        versions = allowed(package)
        chosen = [versions[0], versions[-1]] if options.ends or in_turn else versions
        for version, runs in grid(package, chosen).items():
            folder = environment(package, version)
            for others in runs:
                if others:
                    install(folder, *others)
                command = [folder / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
                command += [*(TESTS | ENDS)[package], *(SHORT if in_turn and package in TESTS else [])]
                run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
                failed = failed or run.returncode != 0
                shown = ", ".join([str(version), *others])
                print(f"| {package} | {shown} | {run.stdout.strip().splitlines()[-1].strip('= ')} |", flush=True)
                if run.returncode:
                    print(run.stdout[-6000:], run.stderr[-2000:], file=sys.stderr, flush=True)
            shutil.rmtree(folder)
    sys.exit(failed)


if __name__ == "__main__":
    main()

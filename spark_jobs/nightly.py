"""The nightly job for `spark-submit`; the options are those of `sluice quotas compute`.

    spark-submit --master spark://host:7077 --py-files sluice-spark-0.2.0.zip sluice-spark-0.2.0.py \\
        --log s3a://bucket/access-log --date 2026-11-20 --state s3a://bucket/quota-state -o s3a://bucket/quotas.json

The driver must be able to import `limiter` and `spark_jobs`: from a checkout (this file's own folder is enough), an installed wheel, or
`--py-files`; `make spark-zip` builds the archive and this program. The workers need numpy and pyarrow only. Exit codes: 0 done, 1 failed,
2 usage, 5 input missing or too damaged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

HERE = Path(__file__).resolve().parent


def make_importable() -> None:
    """Run as a file, Python puts this folder on the path, where modules have wrong names: what holds the package is meant."""
    if sys.path and sys.path[0] and Path(sys.path[0]).resolve() == HERE:
        sys.path[0] = str(next(folder for folder in HERE.parents if not (folder / "__init__.py").exists()))


def arguments() -> argparse.ArgumentParser:
    from spark_jobs.parameters import TEXTS, Parameters

    parser = argparse.ArgumentParser(prog="nightly.py", description="Compute quotas from one day of access log.", allow_abbrev=False)
    parser.add_argument("--log", required=True, help="folder of the access log: a path or URL")
    parser.add_argument("--date", help="the day to add, YYYY-MM-DD; default: yesterday, in the time zone")
    parser.add_argument("--state", required=True, help="folder of the daily states: a path or URL")
    parser.add_argument("-o", "--output", required=True, help="the snapshot to write: a path or URL")
    parser.add_argument("--master", help="Spark master; default: spark-submit's own, or local[*]")
    parser.add_argument("--driver-memory", metavar="SIZE", help="Java's heap on a local master, like 4g; default: by the log's size")
    parser.add_argument("--conf", metavar="NAME=VALUE", action="append", default=[], help="a setting of Spark; may be repeated")
    parser.add_argument("--previous", help="the snapshot in force, for the guard rails: a path or URL")
    parser.add_argument("--pins", help="a file of pinned quotas (YAML): a path or URL")
    parser.add_argument("--exclude", action="append", default=[], metavar="FROM/TO:TOPIC", help="an incident that teaches nothing")
    parser.add_argument("--allow-partial", action="store_true", help="scale a day on which gateways are missing, instead of refusing it")
    parser.add_argument("--now", help="moment to write as computed_at (for tests)")
    for each in fields(Parameters):
        kind = str if each.name in TEXTS else int
        text = f"{each.metadata['help']} (default {each.default})".replace("%", "%%")
        names = [
            f"--{each.name.replace('_', '-')}",
            *(["--capacity"] if each.name == "capacity_messages" else []),
        ]  # as the command line has it
        parser.add_argument(*names, type=kind, help=text)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    make_importable()
    options = vars(arguments().parse_args(argv))

    from spark_jobs.commands import compute

    return compute(**options)


if __name__ == "__main__":
    sys.exit(main())

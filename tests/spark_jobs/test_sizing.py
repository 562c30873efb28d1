"""What a night takes of a machine, and the options that say otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.sizing import (
    GB,
    compute_plain_bytes,
    estimate_lines_bytes,
    parse_conf_options,
    parse_memory_option,
    read_machine_memory,
    size_session,
)

MB = 2**20


def test_a_small_night_is_as_cheap_as_it_was() -> None:
    small = size_session(20 * MB, 24 * GB, 2)
    assert (small.partitions, small.adaptive, small.quick) == (2, False, True)
    assert small.heap < 1.1 * GB


def test_heap_and_partitions_grow_with_the_log_up_to_their_bounds() -> None:
    sizes = [size_session(size, 24 * GB, 2) for size in (0, 2 * GB, 20 * GB, 2000 * GB)]
    assert [round(each.heap / GB, 1) for each in sizes] == [1.0, 1.5, 4.0, 4.0]
    assert [each.partitions for each in sizes] == [2, 8, 80, 400]
    assert [each.adaptive for each in sizes] == [False, False, True, True]
    assert sizes[2].settings() == {
        "spark.driver.memory": "4096m", "spark.sql.shuffle.partitions": "80", "spark.sql.adaptive.enabled": "true",
    }  # fmt: skip


def test_a_small_machine_keeps_half_of_its_memory() -> None:
    assert size_session(20 * GB, 3 * GB, 2).heap == 1.5 * GB
    assert size_session(20 * GB, GB // 2, 1).heap == GB // 2


def test_a_day_is_read_without_spark_where_twice_its_size_is_half_of_the_memory() -> None:
    assert [compute_plain_bytes(memory) for memory in (GB, 2 * GB, 64 * GB)] == [GB // 4, GB // 2, 512 << 20]


def test_compressed_files_count_as_the_lines_in_them() -> None:
    assert estimate_lines_bytes([("a.jsonl", 100), ("b.jsonl.open", 10), ("c.jsonl.gz", 10), ("d.parquet", 1)]) == 250
    assert estimate_lines_bytes([]) == 0


def test_memory_is_the_containers_where_that_is_less(tmp_path: Path) -> None:
    info, limit, none = tmp_path / "meminfo", tmp_path / "memory.max", tmp_path / "max"
    info.write_text("MemFree: 5 kB\nMemTotal:       16777216 kB\n")
    limit.write_text(f"{2 * GB}\n")
    none.write_text("max\n")
    assert read_machine_memory(info, [none, tmp_path / "absent"]) == 16 * GB
    assert read_machine_memory(info, [limit]) == 2 * GB
    assert read_machine_memory(tmp_path / "absent", []) == 8 * GB


@pytest.mark.parametrize(("text", "meant"), [("4g", "4g"), ("512M", "512m"), ("2GiB", "2g"), ("3 gb", "3g")])
def test_driver_memory_is_a_size(text: str, meant: str) -> None:
    assert parse_memory_option(text) == meant


@pytest.mark.parametrize("text", ["4", "", "0g", "much", "-1g", "4gg"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"--driver-memory: .* write it like 4g or 512m"):
        parse_memory_option(text)


def test_settings_of_spark_are_name_and_value() -> None:
    assert parse_conf_options(["spark.a=1", "spark.b=x=y", "spark.a=2"]) == {"spark.a": "2", "spark.b": "x=y"}
    for text in ("spark.a", "a=1", "=1"):
        with pytest.raises(ValueError, match=r"--conf: .* is no setting of Spark; write it like"):
            parse_conf_options([text])

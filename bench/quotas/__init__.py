"""The benchmark of the nightly job: Spark and DuckDB over the same generated log."""

"""The command line, `sluice`. Speaks to a running gateway only through its admin API."""

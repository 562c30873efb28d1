"""The method: from what is remembered of each topic's days to its quota. Pure numpy over arrays (topics x days); docs/design/quotas.md."""

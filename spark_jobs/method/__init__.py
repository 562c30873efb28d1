"""The method: from each topic's remembered days to its quota. Pure numpy over arrays (topics x days); docs/design/quotas.md."""

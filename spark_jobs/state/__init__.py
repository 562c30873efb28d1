"""The memory of each day: the state of a day, and its publication (docs/quotas.md)."""

"""The memory of each day: what a day's state is, and how it is published (docs/quotas.md)."""

"""The durable state: live changes, their journals, quota snapshots, and what is done with them at the start."""

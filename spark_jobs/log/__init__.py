"""The gateway's access log as the job reads it (docs/quotas.md). Start at `files.py`."""

"""What becomes of the access log's files once they are closed: compressed, kept, compacted, shipped (`docs/access-log.md`).

Nothing here runs inside a gateway's own process: `keeper.py` is a child of low priority (`control_plane/log_keeping.py` starts it), the
rest is of `sluice log`. All of it takes one lock per directory (`durable.lock`), so that two never change the same file.
"""

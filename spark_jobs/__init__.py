"""The nightly job: the gateway's access log of one day becomes a state of that day, the remembered days become quotas (docs/quotas.md).

Start at `recompute.py`: it is the way of the data, one step per line. `commands.compute` is what `sluice quotas compute` calls,
`nightly.py` what `spark-submit` runs. Of ours only `limiter.quota_snapshot` and `limiter.protocols` are imported, and nothing here imports
pyspark before `commands.compute` is called.
"""

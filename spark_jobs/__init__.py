"""The nightly job: the gateway's access log of one day becomes a state of that day, the remembered days become quotas (docs/quotas.md).

Start at `compute.py`: the Spark part of a night is `day.py`, the driver's `night.py`. `commands.compute` is what `sluice quotas compute`
calls, `nightly.py` what `spark-submit` runs. Of ours only `common`, `limiter.quota_snapshot` and `limiter.protocols` are imported
(`nights/` also its units, `backtest/` all of the limiter), and no JVM starts before `commands.compute` is called.
"""

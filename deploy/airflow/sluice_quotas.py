"""An Airflow DAG that runs `sluice quotas nightly` (docs/quotas.md). Put it into the DAGs folder; Airflow 2.9 or newer, or 3.

The worker has `sluice` on its PATH and Java 17. It takes from its environment:

    SLUICE_QUOTAS_LOG, SLUICE_QUOTAS_STATE     where log and daily states are; folders or URLs
    SLUICE_GATEWAYS, SLUICE_TOKEN_FILE         admin APIs to publish at, and the token for them

At 00:40 UTC, when a log that is shipped is there. No date is given: the command takes yesterday, and makes up for days it has missed. So
`catchup` is off, and one run is active at a time.
"""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta

from airflow.exceptions import AirflowException, AirflowFailException

try:
    from airflow.sdk import dag, task
except ImportError:  # Airflow 2
    from airflow.decorators import dag, task

FINAL = {2: "wrong usage", 3: "stopped by a rail or the backtest", 5: "insufficient input"}  # trying again does not mend these


@dag(schedule="40 0 * * *", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1, tags=["sluice"])
def sluice_quotas() -> None:
    @task(retries=3, retry_delay=timedelta(minutes=30), execution_timeout=timedelta(hours=6))
    def nightly() -> None:
        log = os.environ.get("SLUICE_QUOTAS_LOG", "/srv/access-log")
        state = os.environ.get("SLUICE_QUOTAS_STATE", "/srv/quota-state")
        done = subprocess.run(["sluice", "quotas", "nightly", "--log", log, "--state", state], check=False)
        if done.returncode in FINAL:
            raise AirflowFailException(
                f"sluice quotas nightly ended with {done.returncode}: {FINAL[done.returncode]}; its own lines say why"
            )
        if done.returncode != 0:
            raise AirflowException(f"sluice quotas nightly ended with {done.returncode}; its own lines say why")

    nightly()


sluice_quotas()

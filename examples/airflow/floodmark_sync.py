"""Syncs a pipeline every ten minutes, with the program `floodmark` on the worker's PATH.

What an exit code means to Airflow:

    0  done
    1  failed: Airflow tries again, which is safe, since every commit counts once
    2  wrong usage or configuration: trying again will not mend it
    3  some tables failed: they are named, and Airflow tries again
    4  another run holds the table: skipped, the next run takes what is there by then
    5  verification found a difference: somebody has to look
"""

import json
import subprocess
from datetime import datetime, timedelta, timezone

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

CONFIG = "/etc/floodmark/floodmark.yml"
PIPELINE = "settlement"
FINAL = {2: "wrong usage or configuration", 5: "verification found a difference"}
BUSY = 4


@dag(
    schedule=timedelta(minutes=10),
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["floodmark"],
)
def floodmark_sync():
    """Keep the warehouse in step with MySQL."""

    @task
    def sync() -> dict:
        """Run the program; its log goes to the task's log, its result to whoever asks for it."""
        command = ["floodmark", "sync", "-p", PIPELINE, "--config", CONFIG, "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        result = json.loads(done.stdout) if done.stdout.strip() else {"tables": []}
        failed = [f"{t['table_name']}: {t['error']}" for t in result["tables"] if t["error"]]
        reason = "; ".join(failed) or f"exit code {done.returncode}, see the log"
        if done.returncode == BUSY:
            raise AirflowSkipException(reason)
        if done.returncode in FINAL:
            raise AirflowFailException(f"{FINAL[done.returncode]}: {reason}")
        if done.returncode != 0:
            raise AirflowException(reason)
        return result

    sync()


floodmark_sync()

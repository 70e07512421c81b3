"""Syncs a pipeline every ten minutes, in the task itself: floodmark is a library here.

What a task makes of a result:

    done                                  it returns rows and positions to whoever asks for them
    wrong usage or configuration          it fails: to try again does not help
    another run holds the tables          it is skipped: the next run takes what is there by then
    verification found a difference       it fails: somebody has to look
    anything else                         it fails, and Airflow tries again, which is safe

Notices go to the task's log by themselves, under the logger `floodmark`. When Airflow ends the task
with an exception, as at its timeout, what was committed stays and leases are released.

floodmark is installed in the workers' environment. Where its libraries and Airflow's exclude each
other, write `@task.external_python(python="/opt/floodmark/bin/python")` instead of `@task`, and
import what the task raises inside it.
"""

from datetime import datetime, timedelta, timezone

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

CONFIG = "/etc/floodmark/floodmark.yml"
PIPELINE = "settlement"


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
        """Sync the pipeline, and return what was done to each table."""
        import floodmark  # here, since Airflow reads this file again and again

        try:
            with floodmark.open_project(CONFIG) as project:
                result = project.sync(pipelines=PIPELINE).raise_for_failures()
        except floodmark.BusyError as error:
            raise AirflowSkipException(error.message) from error
        except (floodmark.UsageError, floodmark.DifferenceFound) as error:
            raise AirflowFailException(error.message) from error
        except floodmark.FloodmarkError as error:
            raise AirflowException(error.message) from error
        return {table.table_name: str(table.end) for table in result.tables}

    sync()


floodmark_sync()

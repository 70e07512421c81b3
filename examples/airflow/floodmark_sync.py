"""Sync a pipeline every ten minutes, in the task itself, with floodmark as a library.

The outcome of the task:

    done                                  returns rows and positions as XCom
    wrong usage or configuration          fails without a retry
    another run holds the tables          is skipped; the next run continues
    verification found a difference       fails without a retry: needs attention
    anything else                         fails, and Airflow retries, which is safe

Notices appear in the task's log, from the logger `floodmark`. When Airflow stops the task with an
exception, as at its timeout, commits stay and leases are released.

Install floodmark in the workers' environment. If its dependencies conflict with Airflow's, write
`@task.external_python(python="/opt/floodmark/bin/python")` instead of `@task`, and import the
exceptions inside the task.
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
    """Sync MySQL to the warehouse."""

    @task
    def sync() -> dict:
        """Sync the pipeline, and return what was done to each table."""
        import floodmark  # here, since Airflow parses this file repeatedly

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

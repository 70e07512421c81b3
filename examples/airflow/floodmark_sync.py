"""Sync in Airflow's tasks, with floodmark as a library: two DAGs, of which most need only one.

`floodmark_pipelines` has a task for each pipeline. One task shares its Spark session among all its
tables, so this is the faster way.

`floodmark_tables` has a task for each table, mapped over the tables of the configuration: a table
that fails is retried alone, and has its own log and its own place in the grid. Each task with rows
to read starts Spark, so `AT_ONCE` limits how many run at the same time; a warehouse in DuckDB can
be opened by one process only, so let it be 1 there. Airflow maps at most 1,024 tasks at once
(`max_map_length`).

The outcome of a task:

    done                                  returns the positions as XCom
    wrong usage or configuration          fails without a retry
    another run holds the tables          is skipped; the next run continues
    verification found a difference       fails without a retry: needs attention
    anything else                         fails, and Airflow retries, which is safe

Notices appear in the task's log, from the logger `floodmark`. When Airflow stops the task with an
exception, as at its timeout, commits stay and leases are released.

Install floodmark in the environment of the workers, beside Airflow. If other packages there
conflict with it, write `@task.external_python(python="/opt/floodmark/bin/python")` instead of
`@task`, and move `sync` and the imports that it needs into the task.
"""

from datetime import datetime, timedelta, timezone

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

CONFIG = "/etc/floodmark/floodmark.yml"
PIPELINES = ["settlement"]
AT_ONCE = 2
DAG = {
    "schedule": timedelta(minutes=10),
    "start_date": datetime(2025, 1, 1, tzinfo=timezone.utc),
    "catchup": False,
    "max_active_runs": 1,
    "default_args": {"retries": 2, "retry_delay": timedelta(minutes=1)},
    "tags": ["floodmark"],
}


def sync(**chosen: str) -> dict:
    """Sync tables or pipelines, and return each table's position; raise what Airflow knows."""
    import floodmark  # here, since Airflow parses this file repeatedly

    try:
        with floodmark.open_project(CONFIG) as project:
            result = project.sync(**chosen).raise_for_failures()
    except floodmark.BusyError as error:
        raise AirflowSkipException(error.message) from error
    except (floodmark.UsageError, floodmark.DifferenceFound) as error:
        raise AirflowFailException(error.message) from error
    except floodmark.FloodmarkError as error:
        raise AirflowException(error.message) from error
    return {table.table_name: str(table.end) for table in result.tables}


@dag(**DAG)
def floodmark_pipelines():
    """Sync each pipeline in one task."""

    @task(map_index_template="{{ task.op_kwargs['pipeline'] }}")
    def sync_pipeline(pipeline: str) -> dict:
        return sync(pipelines=pipeline)

    sync_pipeline.expand(pipeline=PIPELINES)


@dag(**DAG)
def floodmark_tables():
    """Sync each table in a task of its own."""

    @task
    def list_tables() -> list:
        import floodmark

        with floodmark.open_project(CONFIG) as project:
            return [str(table) for table in project.tables]

    @task(map_index_template="{{ task.op_kwargs['table'] }}", max_active_tis_per_dag=AT_ONCE)
    def sync_table(table: str) -> dict:
        return sync(tables=table)

    sync_table.expand(table=list_tables())


floodmark_pipelines()
floodmark_tables()

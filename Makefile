.DEFAULT_GOAL := help
.PHONY: help setup mysql promtool demo test test-unit check redshift docs story bench storm volume airflow notebook dbt lowest pin clean
bin := .venv/bin

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 11

setup: ## Install missing packages and create the virtual environment
	@scripts/setup

mysql: setup ## Unpack a real MySQL server for the tests, if available
	@[ -e .mysql/template/auto.cnf ] || { echo 'setup: unpacking MySQL'; scripts/get-mysql .mysql; } || \
	echo 'setup: MySQL is not available here; its tests are skipped' >&2

promtool:
	@[ -x .promtool/promtool ] || { echo 'setup: unpacking promtool'; scripts/get-promtool .promtool; } || \
	echo 'setup: promtool is not available here; the test of the alerts is skipped' >&2

demo: setup ## Run a self-contained demo
	@$(bin)/floodmark demo

test: check mysql promtool ## Run all tests
	$(bin)/python scripts/run_tests.py -n 4 --dist loadfile --no-loadscope-reorder --durations=15

test-unit: setup ## Run the tests that need no server, in less than a minute
	$(bin)/python -m pytest tests/unit

check: setup ## Check formatting, style, types, layers and language
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	$(bin)/mypy
	$(bin)/python -m pytest tests/unit/test_layers.py tests/unit/test_language.py

redshift: setup ## Check a real cluster (FLOODMARK_REDSHIFT_URL, _LAKE, _ROLE), and print a report
	PYTHONPATH=tests $(bin)/python -m pytest -p redshift_report -m real_redshift -W ignore --tb=no -rN tests/integration/test_real_redshift.py

docs: setup ## Generate the reference documentation
	$(bin)/python scripts/reference.py

story: setup ## Run the demo, and write its output into the README
	$(bin)/python scripts/story.py

bench: setup ## Measure speed against other tools (FLOODMARK_BENCH_ROWS for less)
	scripts/bench-peers
	scripts/bench-release || echo "setup: the last release is not in this clone: it is not measured" >&2
	$(bin)/python bench/startup.py
	PYTHONPATH=tests:bench $(bin)/python bench/run.py
	$(bin)/python bench/report.py
	.peers/bin/python bench/plot.py

storm: setup mysql ## Run longer random storms, and all tests of sources on both servers
	FLOODMARK_ALL_SERVERS=1 FLOODMARK_STORM_ROUNDS=30 $(bin)/python -m pytest -s tests/faults/test_load_storm.py tests/faults/test_source_storm.py tests/faults/test_operator_fuzz.py tests/faults/test_cluster_nodes.py tests/faults/test_load_kills.py tests/faults/test_reconcile_kills.py tests/faults/test_reconcile_storm.py
	FLOODMARK_ALL_SERVERS=1 $(bin)/python -m pytest -n 3 --dist loadfile -k 'mariadb or mysql' tests/integration tests/faults
	FLOODMARK_SPARK='{fast_start: off}' $(bin)/python -m pytest -n 3 --dist loadfile --ignore tests/integration/test_spark_start.py tests/integration

volume: setup ## Sync 5.5 million rows in 110 files, and check every count
	PYTHONPATH=tests $(bin)/python bench/volume.py

airflow: setup ## Run the Airflow example in Airflow, in its own environment
	[ -x .venv-airflow/bin/airflow ] || { python3 -m venv .venv-airflow && .venv-airflow/bin/pip install -q apache-airflow -e '.[all]'; }
	$(bin)/python -m pytest tests/unit/test_examples.py tests/integration/test_airflow.py

notebook: setup ## Run a notebook in Jupyter's kernel, in its own environment
	[ -x .venv-notebook/bin/jupyter ] || { python3 -m venv .venv-notebook && .venv-notebook/bin/pip install -q -c constraints.txt ipykernel nbclient -e '.[all]'; }
	$(bin)/python -m pytest tests/integration/test_notebook.py

dbt: setup ## Check the dbt example against dbt, in its own environment
	[ -x .venv-dbt/bin/dbt ] || { python3 -m venv .venv-dbt && .venv-dbt/bin/pip install -q 'dbt-core>=1.11,<1.12' dbt-duckdb; }
	$(bin)/python -m pytest tests/integration/test_dbt.py

pin: setup ## Write requirements.txt, with hashes, after constraints.txt has changed
	scripts/pin

lowest: setup mysql ## Run all tests with the lowest allowed versions
	scripts/lowest

clean: ## Remove the virtual environment and caches
	rm -rf .release .venv .venv-airflow .venv-notebook .venv-dbt .venv-lowest .mysql .promtool .mypy_cache .pytest_cache .ruff_cache .hypothesis

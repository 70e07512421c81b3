"""Check, before rows are read, that the target could take them."""

from functools import partial

from floodmark.errors import FloodmarkError, SchemaConflict, TargetTaken, UnknownGrantee
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.table import TableName
from floodmark.sync.load_checks import load_again_hint
from floodmark.sync.loading import Loading
from floodmark.sync.log_facts import columns_in
from floodmark.sync.pending_loads import surely_loaded
from floodmark.warehouse.target import refuse_stopping


def check_target(loading: Loading, table: TableName) -> None:
    """Raise an error before rows are read that could not be loaded, whatever their columns.

    SchemaConflict if the target has no table of that name, but something else; TargetTaken;
    UnknownGrantee.

    A target that cannot be reached now does not keep us from reading; the load reports it. One that
    took the last load is not asked: whatever has changed in it since, the load finds.
    """
    if loading.target_missing():
        return
    watermark = loading.store.known(table)
    if watermark is not None and surely_loaded(loading, watermark):
        return
    load_epoch = watermark.redshift_state.load_epoch if watermark else 1
    try:
        with loading.open_target() as target:
            target.check_owner(str(table), load_epoch, loading.target_name)
            target.check_grants(loading.target_name)
    except (SchemaConflict, TargetTaken, UnknownGrantee):
        raise
    except FloodmarkError:
        return


def check_frozen(
    loading: Loading, table: TableName, columns: tuple[Column, ...], key: tuple[str, ...]
) -> None:
    """Raise SchemaConflict before rows are read that a table could not hold without a change.

    A target that cannot be reached now does not keep us from reading; the load reports it.
    """
    if loading.target_missing():
        return
    expected = TargetTable(name=loading.target_name, columns=columns, primary_key=key, version=None)
    try:
        with loading.open_target() as target:
            found = target.compare(expected, partial(columns_in, loading.store.log, table))
    except FloodmarkError:
        return
    try:
        refuse_stopping(expected.name, found)
    except SchemaConflict as error:
        error.hint = error.hint or load_again_hint(table, expected.name)
        raise

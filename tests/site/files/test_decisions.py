"""The table of decisions: its bytes do not depend on the pieces."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet


def test_row_groups_do_not_follow_the_pieces(tmp_path, monkeypatch):
    from conovel.site import output as decisions

    monkeypatch.setattr(decisions, "_GROUP", 100)
    table = pa.table({"score": np.arange(450.0)})
    for size in (1, 30, 99, 100, 170, 1000):
        slices = (table.slice(i, size) for i in range(0, 450, size))
        decisions.write_rows(tmp_path / f"{size}.parquet", slices, _folder(tmp_path / "work"))
    pa_parquet.write_table(table, tmp_path / "whole.parquet", row_group_size=100)
    written = {path.read_bytes() for path in tmp_path.glob("*.parquet")}
    assert len(written) == 1


def _folder(path):
    path.mkdir(exist_ok=True)
    return path

"""What the page on backups says is worth keeping is enough to go on."""

import json
import shutil

import pytest
from support.federation import SCORER, SITES

from conovel.errors import ReplayedMessageError
from conovel.federation.loopback import COORDINATOR, OPERATOR, Loopback
from conovel.federation.run_records import RunRecords
from conovel.federation.settings import read_site

FORGOTTEN = ("engine.log", "joined", "peers", "supervisor.pid", ".audit.jsonl.lock")


def keep_what_the_page_says(folder):
    """Remove from a party's folder what is not worth keeping."""
    for path in (folder / "kit").iterdir():
        if path.name not in ("startup", "local"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in FORGOTTEN:
        (folder / "state" / name).unlink(missing_ok=True)


@pytest.mark.slow
def test_parties_go_on_with_what_was_kept(rows, tmp_path):
    federation = Loopback(
        tmp_path / "f",
        rows,
        model=f'scorer = "{SCORER}"',
        consent='regimes = ["full", "isolated"]\nmax_runs_per_data = 2',
        environment={"OMP_NUM_THREADS": "1"},
    )
    operator = str(federation.settings(OPERATOR))
    try:
        ids = []
        for regime, code in (("full", 0), ("full", 0), ("full", 3)):
            federation.bring_up()
            out = tmp_path / f"{len(ids)}.json"
            asked = ("run", "--federation", operator, "--regime", regime, "--out", str(out))
            ended = federation.run(*asked)
            assert ended.returncode == code, ended.stdout + ended.stderr
            ids.append(json.loads(out.read_text())["terms"]["run_id"])
            federation.stop()
            for party in (COORDINATOR, *SITES):
                keep_what_the_page_says(federation.folder / party)
        # The third was refused: the restored audit log has counted the first two.
        assert "it agrees to" in ended.stdout + ended.stderr
        for site in SITES:
            file = read_site(federation.settings(site))
            chain = file.audit_log.read()
            assert not chain.broken
            assert [e["run"] for e in chain.entries if e["entry"] == "begin"] == ids
            with pytest.raises(ReplayedMessageError):
                RunRecords(file.state).open(ids[0], 60)
    finally:
        federation.stop()

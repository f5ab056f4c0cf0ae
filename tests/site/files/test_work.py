"""A detection that was broken off continues, and gives the same bytes."""

import json
import os
import signal

import pytest
from support.files import N_NULL, N_TEST, cut, in_memory, in_pieces, left_in, trees

from conovel.site.engines import LocalEngine


def run_in_child(files, out, die_at, hook):
    """Run in a forked process that kills itself at the given call of the hook."""
    child = os.fork()
    if child == 0:
        try:
            hook(die_at)
            in_pieces(trees(), files, out)
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return status


def die_at_replace(nth, after=False):
    """Kill this process right before, or after, a file gets its name."""
    replace, calls = os.replace, [0]

    def dying(*names):
        calls[0] += 1
        if calls[0] == nth and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*names)
        if calls[0] == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = dying


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_anywhere_and_started_again_gives_the_same_bytes(files, monkeypatch):
    cut(monkeypatch, 250)
    in_memory(trees(), files / "memory.parquet")
    expected = (files / "memory.parquet").read_bytes()
    out, n_kills = files / "out.parquet", 0
    while True:  # manifest, rows, 3 of names, rows, model, 4 + 3 parts, output
        out.unlink(missing_ok=True)
        status = run_in_child(files, out, n_kills + 1, die_at_replace)
        if os.waitstatus_to_exitcode(status) == 0:
            break
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        assert not out.exists()
        n_kills += 1
        in_pieces(trees(), files, out)
        assert out.read_bytes() == expected
        assert left_in(files) == ["memory.parquet", "null", "out.parquet", "test"]
    assert n_kills == 15


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_again_and_again_it_still_gets_there(files, monkeypatch):
    """Every start gets one file further than the one before: nothing is done twice."""
    cut(monkeypatch, 250)
    in_memory(trees(), files / "memory.parquet")
    out = files / "out.parquet"
    for _ in range(15):
        assert not out.exists()
        run_in_child(files, out, 1, lambda nth: die_at_replace(nth, after=True))
    assert out.read_bytes() == (files / "memory.parquet").read_bytes()


class Spy(LocalEngine):
    """Counts the rows that are scored."""

    def __init__(self):
        super().__init__(1)
        self.n = 0

    def scores(self, model, pieces):
        for tag, scores in super().scores(model, pieces):
            self.n += len(scores)
            yield tag, scores


class Enough(Exception):
    pass


def stop_when(stage, done):
    def tell(at, n, total):
        if at == stage and n >= done:
            raise Enough

    return tell


def test_going_on_scores_only_what_is_missing(files, monkeypatch):
    cut(monkeypatch, 100)
    out, spy = files / "out.parquet", Spy()
    with pytest.raises(Enough):
        in_pieces(trees(), files, out, on_progress=stop_when("scoring", 400))
    in_pieces(trees(), files, out, engine=spy)
    assert spy.n == 200


def test_other_inputs_or_settings_begin_anew(files, monkeypatch):
    cut(monkeypatch, 100)
    out = files / "out.parquet"
    for change in ("settings", "inputs"):
        with pytest.raises(Enough):
            in_pieces(trees(), files, out, on_progress=stop_when("scoring", 400))
        spy, seed = Spy(), 1 if change == "settings" else 0
        if change == "inputs":
            os.utime(files / "test" / "0.parquet", (1, 1))
        in_pieces(trees(random_state=seed), files, out, engine=spy)
        assert spy.n == N_NULL - 300 + N_TEST


def test_parts_of_another_model_are_scored_again(files, monkeypatch):
    cut(monkeypatch, 100)
    out, spy = files / "out.parquet", Spy()
    with pytest.raises(Enough):
        in_pieces(trees(), files, out, on_progress=stop_when("scoring", 400))
    note = files / ".out.parquet.work" / "model.json"
    note.write_text(json.dumps({"model": "another"}))
    in_pieces(trees(), files, out, engine=spy)
    assert spy.n == N_NULL - 300 + N_TEST

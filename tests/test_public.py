"""The public namespace: what others rely on, and how fast it comes."""

import subprocess
import sys

import conovel as cn


def printed_by(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_every_public_name_resolves_and_is_listed():
    for name in cn.__all__:
        assert getattr(cn, name) is not None
        assert name in dir(cn)


def test_statistics_need_neither_scikit_learn_nor_numba():
    code = (
        "import sys, conovel; conovel.reject([1, 2, 3] * 9, [9, 9], 0.1);"
        "print([m for m in ('sklearn', 'numba', 'pyarrow', 'pandas') if m in sys.modules])"
    )
    assert printed_by(code) == "[]"


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from conovel.cli import app;"
        "print([m for m in ('sklearn', 'numba', 'pyarrow', 'numpy') if m in sys.modules])"
    )
    assert printed_by(code) == "[]"

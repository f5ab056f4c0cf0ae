"""Change every published value of a run, one at a time, and see what is noticed."""

import copy
from fnmatch import fnmatchcase

from conovel.protocol.not_checked import not_checked
from conovel.protocol.replay import verify


def leaves(plain, path=()):
    """Give the path of every value that is no list of numbers and no table."""
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield from leaves(value, (*path, key))
    elif isinstance(plain, list) and plain:
        places = range(len(plain)) if len(plain) <= 12 else (0, len(plain) // 2, len(plain) - 1)
        for i in places:
            yield from leaves(plain[i], (*path, i))
    else:
        yield path


def forged(value):
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case None:
            return "forged"
        case _:
            return ["forged"]


def with_forged(run, path):
    run = copy.deepcopy(run)
    *steps, last = path
    holder = run
    for step in steps:
        holder = holder[step]
    holder[last] = forged(holder[last])
    return run


def is_declared(path, patterns):
    """Tell whether a path or a folder above it is among the patterns."""
    names = [str(step) for step in path]
    return any(
        len(names) >= len(steps) and all(map(fnmatchcase, names, steps))
        for steps in (pattern.split(".") for pattern in patterns)
    )


def assert_every_forgery_is_found(run):
    assert verify(run) == []
    patterns = not_checked(run)
    missed = [
        ".".join(map(str, path))
        for path in leaves(run)
        if path != ("command",)
        and not is_declared(path, patterns)
        and not verify(with_forged(run, path))
    ]
    assert not missed, missed

"""Two samples in files, anew for each test."""

import pytest
from support.files import make_files


@pytest.fixture
def files(tmp_path):
    return make_files(tmp_path)

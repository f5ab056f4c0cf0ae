"""Detection on files that do not fit into memory."""

from __future__ import annotations

from conovel.site.files.detection import FileDetection, detect_files
from conovel.site.files.engines import Engine, LocalEngine
from conovel.site.files.site import FileSite

__all__ = ["Engine", "FileDetection", "FileSite", "LocalEngine", "detect_files"]

"""Detection on files that do not fit into memory."""

from __future__ import annotations

from conovel.outofcore.detection import FileDetection, detect_files
from conovel.outofcore.engines import Engine, LocalEngine
from conovel.outofcore.site import FileSite

__all__ = ["Engine", "FileDetection", "FileSite", "LocalEngine", "detect_files"]

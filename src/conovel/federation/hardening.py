"""Permissions in a kit. NVFlare's permissive defaults are all replaced.

A job contains no code. It can name two classes at the coordinator and two at a site. No operator
gets a shell, no log leaves a site, and jobs are stored in the coordinator's own folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conovel.rows.storage import write_json
from conovel.spec.fields import MAX_AGENTS
from conovel.spec.records import read_json

APPS = "conovel.federation.apps"
COLLAB = "nvflare.collab.runtime"
SERVER_CLASSES = (f"{COLLAB}.controller.CollabController", f"{APPS}.CoordinatorApp")
SITE_CLASSES = (f"{COLLAB}.executor.CollabExecutor", f"{APPS}.SiteApp")
_OURS = ("presence", "job_manager")  # components that follow the version and the place of a kit
_PRESENCE = {"id": "presence", "path": "conovel.federation.presence.Presence"}


def harden(kit: Path) -> None:
    """Replace the permissive defaults of a kit; delete its scripts, which do not use ours."""
    local = kit / "local"
    for path in [*kit.glob("startup/*.sh"), *kit.rglob("readme.txt"), *kit.rglob("*.ipynb")]:
        path.unlink()
    resources = _resources(kit)
    if resources is None:
        return  # an operator's kit starts no process
    write_json(local / "resources.json", resources)
    write_json(local / "authorization.json", _permissions())
    for name in ("resources.json.default", "authorization.json.default", "privacy.json.sample"):
        (local / name).unlink(missing_ok=True)


def prepare(kit: Path) -> None:
    """Make a kit ready to start: with the classes of this version, and a store of jobs in it."""
    path, wanted = kit / "local" / "resources.json", _resources(kit)
    plain = read_json(path.read_bytes(), str(path))
    if wanted is None:
        return
    ours = {part["id"]: part for part in wanted["components"] if part["id"] in _OURS}
    following = plain | {
        key: wanted[key] for key in ("class_allow_list", "snapshot_persistor") if key in wanted
    }
    following["components"] = [ours.get(part["id"], part) for part in plain["components"]]
    if following != plain:  # a kit that needs no change may be read-only
        write_json(path, following)


def _resources(kit: Path) -> dict[str, Any] | None:
    if (kit / "startup" / "fed_server.json").exists():
        return _coordinator_resources(kit.resolve() / "store")
    return _site_resources() if (kit / "startup" / "fed_client.json").exists() else None


def _permissions() -> dict[str, Any]:
    """Operators may submit, watch and stop runs, and nothing else; no job may contain code."""
    lead = {
        "submit_job": "any",
        "clone_job": "none",
        "manage_job": "any",
        "download_job": "n:submitter",
        "view": "any",
        "app_command": "any",
        "operate": "none",
        "shell_commands": "none",
        "byoc": "none",
    }
    nothing = dict.fromkeys(lead, "none")
    roles = {"project_admin": nothing, "org_admin": nothing, "lead": lead, "member": nothing}
    return {"format_version": "1.0", "permissions": roles}


def _coordinator_resources(store: Path) -> dict[str, Any]:
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(SERVER_CLASSES),
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": MAX_AGENTS,
                "heart_beat_timeout": 30,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor"
            ".StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": storage,
                    "args": {"root_dir": f"{store}/snapshots", "uri_root": "/"},
                },
            },
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                "args": {"max_jobs": 4, "min_schedule_interval": 1.0},
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"uri_root": f"{store}/jobs", "job_store_id": "job_store"},
            },
            {"id": "job_store", "path": storage},
            {
                "id": "process_launcher",
                "path": "nvflare.app_common.job_launcher.server_process_launcher"
                ".ServerProcessJobLauncher",
            },
            _PRESENCE,
        ],
    }


def _site_resources() -> dict[str, Any]:
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(SITE_CLASSES),
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            {
                "id": "resource_manager",
                "path": "nvflare.app_common.resource_managers.gpu_resource_manager"
                ".GPUResourceManager",
                "args": {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0},
            },
            {
                "id": "resource_consumer",
                "path": "nvflare.app_common.resource_consumers.gpu_resource_consumer"
                ".GPUResourceConsumer",
            },
            {
                "id": "process_launcher",
                "path": "nvflare.app_common.job_launcher.client_process_launcher"
                ".ClientProcessJobLauncher",
            },
            _PRESENCE,
        ],
    }

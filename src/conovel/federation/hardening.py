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
_PARTS = "app_common"
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


def _resources_of(classes: tuple[str, ...], components: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(classes),
        **more,
        "components": [*components, _PRESENCE],
    }


def _part(name: str, path: str, **args: Any) -> dict[str, Any]:
    return {"id": name, "path": f"nvflare.{path}"} | ({"args": args} if args else {})


def _coordinator_resources(store: Path) -> dict[str, Any]:
    storage = f"{_PARTS}.storages.filesystem_storage.FilesystemStorage"
    scheduler = f"{_PARTS}.job_schedulers.job_scheduler.DefaultJobScheduler"
    manager = "apis.impl.job_def_manager.SimpleJobDefManager"
    launcher = f"{_PARTS}.job_launcher.server_process_launcher.ServerProcessJobLauncher"
    persistor = f"nvflare.{_PARTS}.state_persistors.storage_state_persistor.StorageStatePersistor"
    folders = {"root_dir": f"{store}/snapshots", "uri_root": "/"}
    snapshots = {"path": f"nvflare.{storage}", "args": folders}
    server = {
        "admin_storage": "transfer",
        "max_num_clients": MAX_AGENTS,
        "heart_beat_timeout": 30,
        "admin_timeout": 10.0,
    }
    components = [
        _part("job_scheduler", scheduler, max_jobs=4, min_schedule_interval=1.0),
        _part("job_manager", manager, uri_root=f"{store}/jobs", job_store_id="job_store"),
        _part("job_store", storage),
        _part("process_launcher", launcher),
    ]
    return _resources_of(
        SERVER_CLASSES,
        components,
        servers=[server],
        snapshot_persistor={"path": persistor, "args": {"uri_root": "/", "storage": snapshots}},
    )


def _site_resources() -> dict[str, Any]:
    resources = f"{_PARTS}.resource_managers.gpu_resource_manager.GPUResourceManager"
    consumer = f"{_PARTS}.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
    launcher = f"{_PARTS}.job_launcher.client_process_launcher.ClientProcessJobLauncher"
    components = [
        _part("resource_manager", resources, num_of_gpus=0, mem_per_gpu_in_GiB=0),
        _part("resource_consumer", consumer),
        _part("process_launcher", launcher),
    ]
    client = {"retry_timeout": 30, "compression": "Gzip"}
    return _resources_of(SITE_CLASSES, components, allow_log_streaming=False, client=client)

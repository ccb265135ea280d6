"""Several hosts: the settings that were given on each, and what the people at the others see of a run."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dfl_dist.config.schema import SETTINGS
from dfl_dist.config.values import OF_HOST, format_value, get
from dfl_dist.config.values import replace as replace_values
from dfl_dist.distributed.control import Control
from dfl_dist.distributed.world import World
from dfl_dist.errors import ConfigError
from dfl_dist.run_folder.job import AUTO, NEVER, Job, run_folder_of
from dfl_dist.training.agreement import agree_on

SEPARATOR = "\t"


def with_own_settings(job: Job, control: Control, world: World, settings: Callable[[], Mapping[str, Any]]) -> Job:
    """The job as this host sees it: its own data, devices and path to the run folder.

    Rank 0's settings count; any other that was given on another host must be the same, or all ranks refuse.
    """
    if world.size == world.local_size:
        return job
    given = agree_on(control, lambda: settings() if world.host > 0 else {}, "read their settings")
    own = [str(control.host), socket.gethostname()]
    own += [text for key in differing(job, given)[:1] for text in (key, format_value(given[key]))]
    told = control.gather_text(SEPARATOR.join(own), "tell their settings")
    agree_on(control, lambda: check_alike(job, [text.split(SEPARATOR) for text in told]), "compare their settings")
    return on_host(job, given)


def differing(job: Job, given: Mapping[str, Any]) -> list[str]:
    """The settings, given on another host, that must be those of the run and are not."""
    return [key for key, value in given.items() if key not in OF_HOST and not is_in_force(job, key, value)]


def is_in_force(job: Job, key: str, value: Any) -> bool:
    """Whether a setting that was given on another host is what the run was asked for, or what that led to.

    A null says nothing, except where it means "none".
    """
    if value is None and not SETTINGS[key].is_optional:
        return True
    return bool(value in (job.asked[key], get(job.resolved, key)))


def check_alike(job: Job, told: list[list[str]]) -> None:
    """Refuse settings that differ between the hosts; on rank 0, which alone has what they told."""
    others = [words[:4] for words in told if len(words) > 2]
    if not others:
        return
    _, _, key, _ = others[0]
    given = dict.fromkeys(f"{value} on host {host} ({name})" for host, name, other, value in others if other == key)
    host, name, *_ = told[0]
    right = job.asked[key] if job.asked[key] is not None else get(job.resolved, key)
    raise ConfigError(
        f"{key}: given {' and '.join(given)}, allowed: {format_value(right)}, as on host {host} ({name}), or nothing"
    )


def on_host(job: Job, given: Mapping[str, Any]) -> Job:
    """The job with the settings that describe this host; where it has the run folder by another path, by that."""
    own = {key: given[key] for key in ("data.root", "device", "threads") if key in given}
    named = given.get("resume") if given.get("resume") not in (None, AUTO, NEVER) else given.get("out")
    folder = run_folder_of(Path(named)) if named else job.folder
    checkpoint = folder / "checkpoints" / job.checkpoint.name if job.checkpoint else None
    return replace(job, resolved=replace_values(job.resolved, own), folder=folder, checkpoint=checkpoint)

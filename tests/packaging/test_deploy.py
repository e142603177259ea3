"""The recipes of examples/deploy are true of this jobctl: options, settings, ports, paths, times.

No cluster and no registry is asked: nothing here starts a container. `make deploy` also asks
Kubernetes' own schema, and runs the playbook.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from jobctl.cli.app import app
from jobctl.store.durations import parse_duration
from jobctl.store.sizes import parse_size
from jobctl.supervisor.settings import TABLE
from jobctl.supervisor.settings_sources import load
from tests.recipes import (
    MANIFEST,
    PLAYBOOK,
    RECIPES,
    container,
    documents,
    environment,
    image,
    pod,
)  # fmt: skip

#: By a supervisor at metrics_listen.
SERVED = {"/livez", "/readyz", "/metrics"}


def understood(words: list[str]) -> None:
    """These are a command of ours and its options. Raises click's errors, and runs nothing."""
    command: click.Command = app
    context = click.Context(app, info_name="jobctl")
    while isinstance(command, click.Group):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    command.parse_args(context, list(words))


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_the_manifest_runs_commands_that_exist(kind: str) -> None:
    """With options that exist."""
    understood(container(kind)["args"])


def test_the_manifests_settings_are_settings() -> None:
    """Each variable is one, and its value is accepted; what holds the DSN is where it is said."""
    given = environment()
    assert {name for name in given if name.startswith("JOBCTL_")} == given.keys()
    loaded = load(environ=given)
    wanted = {name for name, origin in loaded.origins.items() if origin.startswith("JOBCTL_")}
    assert len(wanted) == len(given)
    mounts = {one["mountPath"]: one["name"] for one in container("Deployment")["volumeMounts"]}
    volumes = {one["name"]: one for one in pod("Deployment")["volumes"]}
    dsn = Path(given["JOBCTL_DSN_FILE"])
    assert dsn.name in [one["path"] for one in volumes[mounts[str(dsn.parent)]]["secret"]["items"]]
    # A folder that is not ours, in a volume: ours has to be made inside.
    runtime = Path(given["JOBCTL_RUNTIME_DIR"])
    assert "emptyDir" in volumes[mounts[str(runtime.parent)]]


def test_probes_ask_for_what_is_served() -> None:
    """And none but readiness asks for PostgreSQL: pods are not restarted because it is away."""
    only = container("Deployment")
    (port,) = only["ports"]
    assert environment()["JOBCTL_METRICS_LISTEN"].endswith(f":{port['containerPort']}")
    template = documents()["Deployment"]["spec"]["template"]["metadata"]
    assert template["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    asked = {
        name: only[name]["httpGet"]["path"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert set(asked.values()) <= SERVED
    assert asked["startupProbe"] == asked["livenessProbe"] == "/livez"
    assert asked["readinessProbe"] == "/readyz"
    boot = TABLE["boot_timeout"].default({})
    startup = only["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 2 * boot


def test_a_pod_that_is_told_to_go_has_time_for_its_drain() -> None:
    """And no hook uses that time up."""
    drain = parse_duration(environment()["JOBCTL_DRAIN_TIMEOUT"]).total_seconds()
    assert pod("Deployment")["terminationGracePeriodSeconds"] >= drain + 15
    assert "lifecycle" not in container("Deployment")


def test_only_the_port_of_metrics_is_open() -> None:
    """To those who measure; and policy and budget mean the pods of the Deployment."""
    every = documents()
    (rule,) = every["NetworkPolicy"]["spec"]["ingress"]
    (open_,) = rule["ports"]
    (port,) = container("Deployment")["ports"]
    assert open_["port"] == port["name"] and rule["from"]
    labels = every["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert every["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert every["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def test_the_page_has_the_times_that_are() -> None:
    """Of settings, unit and manifest."""
    page = (RECIPES / "README.md").read_text()
    unit = (RECIPES.parents[1] / "systemd" / "jobctl.service").read_text()
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.M)
    times = {
        "`drain_timeout`": TABLE["drain_timeout"].default_text,
        "`lease`": TABLE["lease"].default_text,
        "`TimeoutStopSec=` of the unit": stop,
        "`terminationGracePeriodSeconds`": pod("Deployment")["terminationGracePeriodSeconds"],
    }
    for name, time in times.items():
        assert f"\n| {name} | {time} |" in page, (name, time)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    """The guard of those above and below."""
    with pytest.raises(click.NoSuchOption):
        understood(["run", "--slotz", "2"])
    with pytest.raises(AssertionError, match="no command"):
        understood(["runs"])


def test_memory_is_enough_for_all_slots() -> None:
    """What the slots may come to, and the supervisor, is below what ends the container."""
    given = environment()
    slots = parse_size(given["JOBCTL_MAX_RSS_PER_SLOT"]) * int(given["JOBCTL_SLOTS"])
    limit = parse_size(
        container("Deployment")["resources"]["limits"]["memory"].replace("Gi", "GiB")
    )
    assert slots + 100 * 2**20 <= limit


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_pods_are_confined(kind: str) -> None:
    """Nobody's root, on a file system that cannot be written."""
    person, confined = pod(kind)["securityContext"], container(kind)["securityContext"]
    assert person["runAsNonRoot"] and person["seccompProfile"] == {"type": "RuntimeDefault"}
    assert confined == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod(kind)["automountServiceAccountToken"] is False


def test_kubernetes_knows_every_field() -> None:
    """By its published schema, strictly: a misspelt field is an error."""
    schema = pytest.importorskip("kubernetes_validate", reason="no kubernetes-validate here")
    newest = schema.latest_version()
    for one in yaml.safe_load_all(MANIFEST.read_text()):
        schema.validate(one, newest, strict=True)
        wrong = {**one, "spec": {**one["spec"], "maxUnavailabel": 1}}
        with pytest.raises(schema.ValidationError):
            schema.validate(wrong, newest, strict=True)


def test_the_image_is_what_the_manifest_expects() -> None:
    """The same person; process 1 is jobctl, in the form that hears signals; its variables exist."""
    said = image()
    person = pod("Deployment")["securityContext"]
    assert said["USER"] == f"{person['runAsUser']}:{person['runAsGroup']}"
    assert json.loads(said["ENTRYPOINT"]) == ["jobctl"]
    understood(json.loads(said["CMD"]))
    assert said["STOPSIGNAL"] == "SIGTERM"
    variables = dict(word.split("=", 1) for word in shlex.split(said["ENV"]))
    ours = {name: value for name, value in variables.items() if name.startswith("JOBCTL_")}
    load(environ=ours)
    assert all(environment()[name] == value for name, value in ours.items())


def test_the_playbook_runs_commands_that_exist() -> None:
    """With options that exist; and it stops at the first host that does not work."""
    plays = yaml.safe_load(PLAYBOOK.read_text())
    assert [play["any_errors_fatal"] for play in plays] == [True] * len(plays)
    assert plays[-1]["serial"] == 1
    typed = [
        task["ansible.builtin.command"]["cmd"]
        for play in plays
        for task in play["tasks"]
        if "ansible.builtin.command" in task
    ]
    assert len(typed) == 3
    for line in typed:
        _, *words = shlex.split(re.sub(r"\{\{.*?\}\}", "60s", line))  # as good as any value
        understood(words)

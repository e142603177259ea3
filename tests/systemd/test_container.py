"""The image and the pod of examples/deploy, as far as they go without a registry and a cluster.

In namespaces of its own on the booted machine jobctl is process 1, nobody's root, without
capabilities, on a file system that cannot be written, with the variables of Containerfile and
manifest and with volumes as the kubelet makes them. What it runs is this working copy.
"""

from __future__ import annotations

import shlex
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.recipes import container, environment, image, pod, variables
from tests.system.host import jobs_of
from tests.systemd.machine import Machine
from tests.systemd.unit import Unit
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ORPHAN = """
@jobctl.job
def leave_an_orphan(ctx):
    import os
    if os.fork() == 0:
        os.setsid()
        os.fork()
        os._exit(0)
    os.wait()
"""


class Pod:
    """One container of it, started and told to go."""

    def __init__(self, machine: Machine, kind: str, **own: str) -> None:
        self.machine = machine
        self.unit = Unit(machine, "container.service")
        # HOME is what a runtime takes from the image's passwd; useradd has made no such folder.
        given = {**variables(), "HOME": "/home/jobctl", "JOBCTL_TEST_FOLDER": "/srv/test/meet"}
        given |= (environment() if kind == "Deployment" else {}) | own
        given["PATH"] = given["PATH"].replace("$PATH", "/usr/bin:/bin")
        user, group = image()["USER"].split(":")
        #: Of a program in the container.
        self.person = [
            "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs",
            "--bounding-set=-all", "--inh-caps=-all", "env", "-i",
            *(f"{name}={value}" for name, value in given.items()),
        ]  # fmt: skip
        command = shlex.join([*self.person, "jobctl", *container(kind)["args"]])
        script = ["#!/bin/sh", "set -e", "mount -t proc proc /proc"]
        volumes = {one["name"]: one for one in pod(kind)["volumes"]}
        for mount in container(kind)["volumeMounts"]:
            there = mount["mountPath"]
            script.append(f"mkdir -p {there}")
            if "emptyDir" in volumes[mount["name"]]:  # the kubelet's mode, with fsGroup
                script.append(f"mount -t tmpfs -o mode=2777,gid={group} tmpfs {there}")
            else:
                script.append(f"mount --bind -o ro /root/secret {there}")
        script += ["mount -o remount,bind,ro /", f"exec {command}"]
        machine.write("/root/container.sh", "\n".join(script) + "\n", 0o755)
        machine.write(
            "/etc/systemd/system/container.service",
            "[Service]\nRemainAfterExit=yes\nExecStart=/usr/bin/unshare --pid --fork --kill-child"
            " --mount --propagation private /root/container.sh\n",
        )
        machine.run("systemctl", "daemon-reload")

    def start(self) -> None:
        self.unit.systemctl("restart")

    @property
    def process(self) -> int:
        """Number 1, as it is called outside; 0 if it is not there."""
        above = int(self.unit.pid)
        if not above:
            return 0
        said = self.machine.run("cat", f"/proc/{above}/task/{above}/children", check=False).stdout
        return int(said.split()[0]) if said.split() else 0

    def inside(self, *command: str, check: bool = True) -> str:
        """`kubectl exec`."""
        ran = self.machine.run(
            "nsenter", f"--target={self.process}", "--mount", "--pid", *self.person, *command,
            check=check,
        )  # fmt: skip
        return ran.stdout + ran.stderr

    def get(self, path: str) -> int:
        """A probe's: the status, from outside; 0 if nobody answers."""
        (port,) = container("Deployment")["ports"]
        url = f"http://127.0.0.1:{port['containerPort']}{path}"

        def ask() -> int:
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code
            except OSError:
                return 0

        with self.machine.network() as there:
            return there.submit(ask).result()

    def terminate(self) -> None:
        """What the kubelet sends."""
        self.machine.run("kill", "-TERM", str(self.process))

    def ended(self) -> int:
        """Its exit code, once it has one."""
        until(lambda: self.unit.show("SubState") in ("exited", "failed"), within=40, what="the end")
        return int(self.unit.show("ExecMainStatus"))


@pytest.fixture
def secret(
    booted: Machine, unit: Unit, fresh_database: str, dsn_inside: Callable[[str], str]
) -> Iterator[None]:
    """Both keys, readable by the group as `defaultMode: 0440` and `fsGroup` make them."""
    group = image()["USER"].split(":")[1]
    for name in ("dsn", "migrate"):
        booted.write(f"/root/secret/{name}", dsn_inside(fresh_database), 0o440)
        booted.run("chgrp", group, f"/root/secret/{name}")
    app = booted.shared / "app" / "shop.py"
    app.write_text(app.read_text() + ORPHAN)
    try:
        yield
    finally:
        Unit(booted, "container.service").forget()
        booted.run("rm", "-rf", "/root/secret", "/root/container.sh")
        booted.run("rm", "-f", "/etc/systemd/system/container.service")


def zombies(machine: Machine) -> list[str]:
    rows = machine.run("ps", "-e", "-o", "stat=,pid=,comm=").stdout.splitlines()
    return [row for row in rows if row.startswith("Z")]


def test_a_pod_lives_and_goes(
    secret: None, booted: Machine, fresh_database: str, meet: Path
) -> None:
    """Migrated, alive, ready; reaps; is asked from inside; told to go it drains: 0, and 5 if what
    runs does not end, which then costs no attempt."""
    migrate = Pod(booted, "Job")
    migrate.start()
    assert migrate.ended() == 0, migrate.unit.journal()

    ours = Pod(booted, "Deployment", JOBCTL_APP="shop", JOBCTL_SLOTS="2", JOBCTL_DRAIN_TIMEOUT="2s")
    with jobs_of(fresh_database) as jobs:
        ours.start()
        until(lambda: ours.get("/readyz") == 200, within=40, what="ready")
        assert ours.get("/livez") == ours.get("/metrics") == 200
        one = Path(f"/proc/{ours.process}")
        status = booted.run("cat", str(one / "status")).stdout
        assert f"\nNSpid:\t{ours.process}\t1\n" in status
        assert "\nUid:\t10001\t10001\t10001\t10001\n" in status
        assert "\nCapBnd:\t0000000000000000\n" in status
        assert "Read-only file system" in ours.inside("touch", "/opt/x", check=False)
        jobs.wait(jobs.enqueue("leave_an_orphan"), "succeeded", within=30)
        until(lambda: not zombies(booted), within=20, what="the orphan to be reaped")
        assert "1 supervisor" in ours.inside("jobctl", "status")
        ours.terminate()
        assert ours.ended() == 0, ours.unit.journal()

        ours.start()
        job = jobs.enqueue("wait_for", {"name": "long"})
        until((meet / "long").exists, within=40, what="the job")
        ours.terminate()
        until(lambda: ours.get("/readyz") == 503, within=10, what="not ready: it drains")
        assert ours.ended() == 5, ours.unit.journal()
        after = jobs.job(job)
        assert (after["state"], after["attempt"], after["crashes"]) == ("queued", 0, 0)
        jobs.nothing_is_misplaced()

"""The playbook of examples/deploy/ansible, run by Ansible on a machine with a real systemd.

`make deploy` installs Ansible and runs this. Two "hosts" of the inventory are the one machine, so
that it is seen whether the second is left alone when the first does not work. What a package index
would be asked for is not run (`--skip-tags install`): the releases lie there already.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.host import Jobs
from tests.systemd.conftest import APP
from tests.systemd.machine import Machine
from tests.systemd.unit import Unit
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

FOLDER = "/opt/jobctl/code/examples/deploy/ansible"


class Playbook:
    """Run on the machine, as its operator would."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        local = "ansible_connection=local ansible_python_interpreter=/opt/jobctl/bin/python"
        machine.write("/root/hosts", f"[jobctl]\nfirst {local}\nsecond {local}\n")

    def run(self, release: str) -> tuple[int, str]:
        """Its exit code, and what it printed."""
        words = (
            "jobctl_app=shop", "jobctl_patience=60s", "jobctl_link=/opt/current",
            "jobctl_folder=/opt/jobctl-releases/{{release}}", f"release={release}",
            "jobctl_host=here", "jobctl_tries=3",
        )  # fmt: skip
        ran = self._machine.run(
            "env", "HOME=/root", "/opt/jobctl/bin/python", "-m", "ansible", "playbook",
            "--inventory", "/root/hosts", "--skip-tags", "install",
            *(part for word in words for part in ("--extra-vars", word)),
            f"{FOLDER}/deploy.yml", check=False,
        )  # fmt: skip
        return ran.returncode, ran.stdout + ran.stderr


@pytest.fixture
def playbook(
    booted: Machine, unit: Unit, database: str, dsn_inside: Callable[[str], str]
) -> Iterator[Playbook]:
    """The unit runs what /opt/current is a link to; of three releases the last is broken."""
    if importlib.util.find_spec("ansible") is None:
        pytest.skip("no Ansible here: pip install ansible-core")
    for release in ("1", "2"):
        booted.run("mkdir", "-p", "/opt/jobctl-releases")
        booted.run("ln", "-sfn", "/opt/jobctl", f"/opt/jobctl-releases/{release}")
    broken = '#!/bin/sh\n[ $1 = run ] && exit 78\nexec /opt/jobctl/bin/jobctl "$@"\n'
    booted.write("/opt/jobctl-releases/3/bin/jobctl", broken, 0o755)
    booted.run("ln", "-sfn", "/opt/jobctl-releases/1", "/opt/current")
    booted.write("/etc/jobctl/migrate.dsn", dsn_inside(database), 0o600)
    unit.drop_in(
        "Environment=JOBCTL_HOST=here", "ExecStart=", "ExecStart=/opt/current/bin/jobctl run"
    )
    unit.systemctl("start")
    yield Playbook(booted)
    booted.run("rm", "-rf", "/opt/current", "/opt/jobctl-releases", "/root/hosts")


def test_a_deploy_and_one_that_does_not_work(
    playbook: Playbook, booted: Machine, unit: Unit, jobs: Jobs, meet: Path
) -> None:
    """What runs may end and costs no attempt; the new code works; the first failure is the last."""
    job = jobs.enqueue("wait_for", {"name": "patient"})
    until((meet / "patient").exists, within=30, what="the job")
    (meet / "patient.go").touch()
    (booted.shared / "app" / "shop.py").write_text(APP.replace("VERSION = 1", "VERSION = 2"))
    before = unit.pid
    code, said = playbook.run("2")
    assert code == 0, said
    assert unit.pid != before
    assert booted.run("readlink", "/opt/current").stdout.strip() == "/opt/jobctl-releases/2"
    after = jobs.wait(job, "succeeded")
    assert (after["attempt"], after["crashes"]) == (1, 0)
    done = jobs.wait(jobs.enqueue("version"), "succeeded", within=30)
    assert done["result"] == {"version": 2}

    code, said = playbook.run("3")
    assert code != 0
    assert "second" not in said.split("TASK [Begin nothing more")[1].split("PLAY RECAP")[0]
    assert unit.show("ExecMainStatus") == "78"
    code, said = playbook.run("2")  # and back
    assert code == 0, said
    assert unit.show("ActiveState") == "active"

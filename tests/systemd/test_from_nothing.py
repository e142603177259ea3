"""The operator's page, section systemd: its commands, as they stand there, give a host that works.

Two things are not as on the page: what a package index would be asked for is there already, and
what an operator types into an editor is written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from tests.system.host import jobs_of
from tests.systemd.conftest import APP
from tests.systemd.machine import HERE, Machine
from tests.systemd.unit import Unit
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)

PAGE = HERE / "examples" / "deploy" / "README.md"
#: What root has on a plain host; the machine of the tests has more.
PLAIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def commands() -> list[str]:
    """What root types, line by line."""
    section = PAGE.read_text().split("\n## systemd\n")[1].split("\n## ")[0]
    return re.findall(r"^# (.+)$", section.split("```console\n")[1].split("```")[0], re.M)


def test_the_pages_commands_give_a_host_that_works(
    booted: Machine, unit: Unit, fresh_database: str, dsn_inside: Callable[[str], str]
) -> None:
    """On a database without a schema; the last command says that all is well."""
    package = booted.shared / "app" / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(APP)
    booted.run("rm", "-rf", "/etc/jobctl")
    dsn = shlex.quote(dsn_inside(fresh_database))

    def typed(line: str) -> tuple[int, str]:
        line = re.sub(r"\beditor (\S+)", rf"echo {dsn} >\1", line)
        script = f"PATH={PLAIN}; cd /opt/jobctl/code/systemd && {line}"
        ran = booted.run("bash", "-c", script, check=False)
        return ran.returncode, f"{line}\n{ran.stdout}{ran.stderr}"

    *before, last = (line for line in commands() if "pip install" not in line)
    assert len(before) >= 6
    try:
        for line in before:
            code, said = typed(line)
            assert code == 0, f"{said}\n{unit.journal()}"
        until(lambda: typed(last)[0] == 0, within=30, what=f"content: {typed(last)}")
        with jobs_of(fresh_database) as jobs:
            done = jobs.wait(jobs.enqueue("version"), "succeeded", within=30)
        assert done["result"] == {"version": 1}
    finally:
        booted.run("systemctl", "disable", unit.name, check=False)

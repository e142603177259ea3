"""What the recipes of examples/deploy say, for the tests that hold them to it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

RECIPES = Path(__file__).parents[1] / "examples" / "deploy"
MANIFEST = RECIPES / "kubernetes" / "jobctl.yaml"
CONTAINERFILE = RECIPES / "container" / "Containerfile"
PLAYBOOK = RECIPES / "ansible" / "deploy.yml"


def documents() -> dict[str, dict[str, Any]]:
    """Of the manifest, by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFEST.read_text())}


def pod(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = documents()[kind]["spec"]["template"]["spec"]
    return found


def container(kind: str) -> dict[str, Any]:
    (only,) = pod(kind)["containers"]
    found: dict[str, Any] = only
    return found


def environment() -> dict[str, str]:
    """That the manifest gives a supervisor."""
    return {one["name"]: one["value"] for one in container("Deployment")["env"]}


def image() -> dict[str, str]:
    """Of the Containerfile's last stage, what each instruction says the last time."""
    text = re.sub(r"\\\n", " ", CONTAINERFILE.read_text())
    return {
        line.split(" ", 1)[0]: line.split(" ", 1)[1]
        for line in text.splitlines()
        if line and not line.startswith("#")
    }


def variables() -> dict[str, str]:
    """That the image brings."""
    return dict(word.split("=", 1) for word in shlex.split(image()["ENV"]))

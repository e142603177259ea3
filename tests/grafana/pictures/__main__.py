"""Draws the pictures in the README from a rehearsal of six minutes: `make pictures`.

Grafana's own components draw them (`page.tsx`), in a Chromium, from a real Prometheus; a palette
keeps them small. Needs node, npm, Chromium and Prometheus.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image

from jobctl.store.embedded import EmbeddedPostgres
from tests.databases import MigratedDatabase
from tests.grafana.dashboards.files import FOLDER, contents
from tests.grafana.rehearsal import Rehearsal, rehearsal
from tests.servers import FAST, chosen_bindir, guarded_folder

HERE = Path(__file__).parent
PICTURES = FOLDER / "pictures"
LARGEST_BYTES = 150_000
#: Of a dashboard's grid, what is in the picture.
MOST_ROWS = 40


def main() -> int:
    """Plays, draws, shrinks; returns what to exit with."""
    PICTURES.mkdir(exist_ok=True)
    with guarded_folder() as folder:
        server = EmbeddedPostgres(folder / "pg", bindir=chosen_bindir(), settings=FAST)
        server.start()
        database = MigratedDatabase(server)
        work = folder / "work"
        work.mkdir()
        try:
            with rehearsal(database.dsn, work) as played:
                _play(played)
                order = work / "order.json"
                order.write_text(
                    json.dumps(
                        {
                            "prometheus": played.prometheus.url,
                            "start": int(played.began) + 20,
                            "end": int(time.time()),
                            "theme": "dark",
                            "most_rows": MOST_ROWS,
                            "dashboards": [str(FOLDER / name) for name in contents()],
                        }
                    )
                )
                command = ["node", str(HERE / "draw.mjs"), str(order), str(PICTURES)]
                done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        finally:
            database.close()
    for picture in PICTURES.glob("*.png"):
        _shrink(picture)
    return done.returncode


def _play(stage: Rehearsal) -> None:
    """Six minutes: an ordinary day, a flood, a paused queue, a drain, a dead host, and troubles."""
    stage.work(50)
    stage.trouble(unknown=False)
    stage.work(30)
    stage.flood(500)
    stage.work(40)
    stage.trouble(unknown=False)
    stage.pause("payments")
    stage.work(40)
    stage.resume("payments")
    stage.drain("ant")
    stage.work(20)
    stage.undrain("ant")
    stage.trouble(unknown=False)
    stage.cancel("move_customers")
    stage.enqueue("build_report", 6, '{"seconds": 15}')
    stage.work(15)
    stage.kill("cat")
    stage.work(25)
    stage.start("cat")
    stage.work(40, load=1.6)
    stage.trouble()
    stage.work(60)
    stage.cancel("move_customers")
    stage.work(15)


def _shrink(picture: Path) -> None:
    """To as many colours as fit."""
    with Image.open(picture) as opened:
        image = opened.convert("RGB")
    for colours in (256, 192, 128, 64, 48, 32):
        image.quantize(colours, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            picture, optimize=True
        )
        if picture.stat().st_size < LARGEST_BYTES:
            return
    raise SystemExit(f"{picture} does not fit into {LARGEST_BYTES} bytes")


if __name__ == "__main__":
    sys.exit(main())

"""`jobctl`, but of a host that always believes that it leads: two leaders, forced.

python tests/system/usurper.py run --app …
"""

from __future__ import annotations

import sys

from jobctl.cli import execute
from jobctl.store import link, statements

LIES = {
    "try_lead": "SELECT true AS taken",
    "still_leads": "SELECT true",
}


def _text(name: str) -> str:
    return LIES.get(name) or statements.sql(name)


if __name__ == "__main__":
    vars(link)["statement_text"] = _text
    sys.exit(execute(sys.argv[1:]))

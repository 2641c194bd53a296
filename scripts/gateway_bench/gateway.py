"""A gateway in a process of its own: `python gateway.py PORT MODEL_DIR UPSTREAM_URL [STORE]`."""

import sys
from pathlib import Path

from duramen.serving.gateway.serve_config import ServeConfig
from duramen.serving.gateway.server import serve
from duramen.serving.gateway.settings import Limits, SessionSettings, Settings


class Quiet:
    def progress(self, line: str) -> None: ...

    def say(self, line: str) -> None: ...


def main(port: str, model_dir: str, upstream: str, store: str | None = None) -> None:
    sessions = SessionSettings(store=Path(store) if store else None)
    limits = Limits(max_running=1024, tenant_max_running=1024)
    serve(
        ServeConfig(
            settings=Settings(sessions=sessions, limits=limits),
            model_dir=Path(model_dir),
            model_name="bench",
            operator=Quiet(),
            upstreams=(upstream,),
            port=int(port),
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

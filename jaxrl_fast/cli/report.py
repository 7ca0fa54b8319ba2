"""`jaxrl-fast report`: a run or a sweep as one HTML page."""

from __future__ import annotations

import contextlib
import http.server
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxrl_fast.cli.args import IMPORT, Option, read_arguments
from jaxrl_fast.errors import ConfigError, UserError, one_line
from jaxrl_fast.values import path as path_of

PORT = 8787
OPTIONS = (
    Option("out", "file", None, "page to write", hint="default: report.html in the folder"),
    Option("serve", "bool", False,
           "show the page at a local address, anew while the training goes on"),
    Option("port", "int", PORT, "port of --serve; 0: a free one", limits=(0, 65535)),
    IMPORT,
)


def report(argv: list[str]) -> None:
    """Write the page of a run or a sweep, or serve it."""
    about = "Write a run, or a sweep, as one HTML page that needs no network."
    (run,), given = read_arguments("report", about, argv)
    folder = Path(path_of("run", run))
    if "port" in given and not given.get("serve"):
        raise ConfigError("--port", given["port"], "left out without --serve")
    import jax

    jax.config.update("jax_platforms", "cpu")  # a card belongs to the run that the page shows
    from jaxrl_fast.runs.config_json import write_text
    from jaxrl_fast.sweeps.report import report as page

    content = page(folder, given.get("import", ()), refresh=bool(given.get("serve")))
    if given.get("serve"):
        with server(given.get("port", PORT), lambda: page(folder, (), refresh=True)) as serving:
            print(f"http://127.0.0.1:{serving.server_port}/ (Ctrl-C ends it)", flush=True)
            return serving.serve_forever()
    out = Path(given.get("out", folder / "report.html"))
    try:
        write_text(out, content)
    except OSError as error:
        raise ConfigError("--out", str(out),
                          f"a file that can be written: {error.strerror}") from error
    print(f"{out} ({len(content.encode()) / 1e6:.1f} MB)")


def answer(path: str, host: str, page: Callable[[], str]) -> tuple[int, str, str]:
    """Return status, type and content for a request; other hosts' names are refused (rebinding)."""
    if path != "/" or host.rpartition(":")[0] not in ("127.0.0.1", "localhost"):
        return 404, "text/plain", "not here"
    try:
        return 200, "text/html", page()
    except UserError as error:  # a row that is being written
        return 503, "text/plain", one_line(str(error))
    except Exception as error:  # the server goes on
        return 500, "text/plain", f"{type(error).__name__}: {one_line(str(error))}"


def server(port: int, page: Callable[[], str]) -> http.server.ThreadingHTTPServer:
    """Return a server at 127.0.0.1 that answers with the current page.

    Raises ConfigError for a port that is taken.
    """
    from jaxrl_fast.runs.report import AGAIN

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, kind, content = answer(self.path, self.headers.get("Host", ""), page)
            data = content.encode()
            with contextlib.suppress(ConnectionError):  # a browser that left
                self.send_response(code)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(data)))
                if code >= 500:  # the page itself asks again; this text cannot
                    self.send_header("Refresh", str(AGAIN))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Print nothing for each request."""

    try:
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise ConfigError("--port", port, f"a free port: {error.strerror}; 0 finds one") from error

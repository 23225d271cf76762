"""An HTTP server on loopback that serves bytes by name, counts what is asked for and can break off."""

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class FileServer:
    """A context manager. `files`: name -> content; `requests`: name -> how often it was asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = dict(files)
        self.requests: Counter[str] = Counter()
        self.break_off_after: int | None = None  # bytes of each file, then the connection is closed
        self.announce_length = True
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.lstrip("/")
                server.requests[name] += 1
                content = server.files.get(name)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                if server.announce_length:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: server.break_off_after])

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

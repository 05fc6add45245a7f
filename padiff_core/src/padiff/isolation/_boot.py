"""Start a worker, in whatever interpreter: say who it is, or what keeps it from working, before padiff is loaded.

Run as a script by that interpreter, which may be older than padiff supports, or have no padiff.
"""

import importlib.util
import json
import socket
import sys
import traceback


def main() -> None:
    """Say one line of JSON, then serve."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    given = [int(word) for word in sys.argv[2:5]]
    del sys.path[0]  # this folder
    found: dict[str, object] = {
        "python": sys.version.split()[0],
        "frameworks": [name for name in sys.argv[5:] if importlib.util.find_spec(name) is not None],
    }
    try:
        import padiff

        found["padiff"] = padiff.__version__
        from padiff.isolation._connection import PROTOCOL
        from padiff.isolation._worker import main as serve

        found["protocol"] = PROTOCOL
    except Exception as error:
        found["trouble"] = traceback.format_exc()
        found["missing"] = getattr(error, "name", None) if isinstance(error, ImportError) else None
    connection.sendall(json.dumps(found).encode() + b"\n")
    if "trouble" in found:
        sys.exit(1)
    serve(connection, *given)


if __name__ == "__main__":
    main()

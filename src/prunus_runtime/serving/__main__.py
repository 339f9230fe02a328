"""The command `python -m prunus_runtime.serving`: a deployed network, served to many callers."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from prunus_runtime import file
from prunus_runtime.errors import InputError
from prunus_runtime.printing import printable


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 if it went well."""
    options = _parser().parse_args(arguments)
    try:
        _serve(options)
    except ImportError as error:
        print(f"error: {error}: pip install 'prunus-runtime[serve]'", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 1
    return 0


def _serve(options: argparse.Namespace) -> None:
    from prunus_runtime.serving.app import Bounds
    from prunus_runtime.serving.run import Settings, serve

    name = options.name or options.model.stem
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise InputError(f"{name!r} is no name for addresses: give one of letters with --name")
    if not 0 <= options.port <= 65535:
        raise InputError(f"port {options.port} does not exist: ports are from 0 to 65535")
    for option in ("workers", "max_batch", "max_queue"):
        value = getattr(options, option)
        if value < 1:
            raise InputError(f"--{option.replace('_', '-')} is {value}, not 1 or more")
    if not 0 <= options.max_delay <= 1000:
        raise InputError(f"--max-delay is {options.max_delay:g} ms, not from 0 to 1000")
    bounds = Bounds(
        max_batch=options.max_batch,
        max_delay=options.max_delay / 1000,
        max_waiting=options.max_queue,
    )
    serve(
        Settings(
            options.model,
            name,
            options.host,
            options.port,
            options.workers,
            options.threads,
            None if options.no_limits else file.DEFAULT,
            bounds,
        )
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m prunus_runtime.serving", description=__doc__)
    add = parser.add_argument
    add("model", type=Path, help="a file that `prunus deploy` wrote")
    add("--name", help="of the model in addresses; by default that of its file")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000, help="0 takes a free one")
    add("--workers", type=int, default=1, help="processes that share the port")
    add("--threads", type=int, help="of each worker; by default its share of the processors")
    add("--max-batch", type=int, default=32, help="images that are computed together")
    add("--max-delay", type=float, default=0, help="ms that an image may wait for others")
    add("--max-queue", type=int, default=256, help="requests that wait; the next gets a 503")
    add("--no-limits", action="store_true", help="trust the file, however much it costs")
    return parser


if __name__ == "__main__":
    sys.exit(main())

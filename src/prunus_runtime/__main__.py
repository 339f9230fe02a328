"""The command `python -m prunus_runtime`: run, describe and serve deployed networks."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np

from prunus_runtime import arrays, deployed, file
from prunus_runtime.atomic import write_atomically
from prunus_runtime.limits import Limits
from prunus_runtime.measures import measure
from prunus_runtime.printing import printable
from prunus_runtime.serve import Server


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 if it went well."""
    options = _parser().parse_args(arguments)
    try:
        COMMANDS[options.command](options)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a reader that is gone is noticed
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor at Python's end
        print("error: what read our output is gone (such as | head)", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def run(options: argparse.Namespace) -> None:
    """Outputs for the images of one file."""
    network = deployed.load(options.model, options.threads, limits=_limits(options))
    output = network(arrays.from_npy(options.input.read_bytes()))
    if options.output:
        write_atomically(options.output, arrays.to_npy(output))
    else:
        np.savetxt(sys.stdout, output.reshape(len(output), -1), "%.6g")


def info(options: argparse.Namespace) -> None:
    """What is in the file, without running it."""
    graph = file.load(options.model, _limits(options))
    measures, size = measure(graph), options.model.stat().st_size
    print(measures)
    print(f"\ninput {graph.input_shape}, output {graph.output_shape}")
    print(graph.images or "images: the file does not say how they become its input")
    print(
        f"\nfile: {size:,} bytes, {measures.float32_bytes / size:.1f} times smaller "
        f"than {measures.parameters:,} parameters in float32"
    )


def classify(options: argparse.Namespace) -> None:
    """Classes of images in JPEG and PNG files, with their probabilities. Needs Pillow."""
    network = deployed.load(options.model, options.threads, limits=_limits(options))
    for path in options.images:
        (found,) = network.classify([path], options.top)
        print(f"{path}: {', '.join(f'{name} {100 * p:.1f} %' for name, p in found.items())}")


def serve(options: argparse.Namespace) -> None:
    """An HTTP server, until it is interrupted; a SIGTERM lets it answer what it was asked."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    network = deployed.load(options.model, options.threads, limits=_limits(options))
    with Server(network, options.host, options.port) as server:
        host, port = server.server_address[:2]

        def end(*_: object) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whoever asks twice is in a hurry
            # In a thread, because this interrupts the very loop that it has to wait for.
            threading.Thread(target=server.leave, daemon=True).start()

        signal.signal(signal.SIGTERM, end)
        print(f"{network!r} at http://{host!s}:{port}", flush=True)
        server.serve_forever(poll_interval=0.1)
        server.drain()


COMMANDS = {"run": run, "classify": classify, "info": info, "serve": serve}


def _limits(options: argparse.Namespace) -> Limits | None:
    return None if options.no_limits else file.DEFAULT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m prunus_runtime", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function in COMMANDS.items():
        command = commands.add_parser(name, help=function.__doc__, description=function.__doc__)
        command.add_argument("model", type=Path, help="a file that `prunus deploy` wrote")
        command.add_argument(
            "--no-limits", action="store_true", help="trust the file, however much it costs"
        )
        if name != "info":
            command.add_argument("--threads", type=int, help="by default one for each processor")
        if name == "run":
            command.add_argument("input", type=Path, help="images, float32 or uint8, as .npy")
            command.add_argument("output", type=Path, nargs="?", help=".npy; default: print")
        if name == "classify":
            command.add_argument("images", nargs="+", help="JPEG or PNG")
            command.add_argument("--top", type=int, default=5, help="classes to print")
        if name == "serve":
            command.add_argument("--host", default="127.0.0.1")
            command.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    return parser


if __name__ == "__main__":
    sys.exit(main())

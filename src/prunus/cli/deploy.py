"""`prunus deploy`: from a trained ticket to a file that runs fast."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from prunus.cli.options import Flag


def deploy(
    ticket: Path,
    *,
    out: Path | None = None,
    task: str | None = None,
    format: Literal["prunus", "onnx", "module"] = "prunus",
    store: Literal["fp32", "fp16", "int8"] = "fp32",
    batch: int = 16,
    threads: int | None = None,
    data: Path | None = None,
    download: Flag = False,
) -> None:
    """Make a trained sparse network small and fast, and write it to one file.

    Prints what became of it: weights and multiply-adds, file size, the difference from the dense
    network, accuracy before and after, and measured speed.

    Parameters
    ----------
    ticket
        A ticket of finished training, as train, prune and retrain write them; or the folder of
        such a run.
    out
        The file to write (default: model.prunus, model.onnx or model.pt2).
    task
        The task that the ticket is for (default: the one it came from).
    format
        prunus: for prunus_runtime, which needs only numpy. onnx: the compacted network for ONNX
        Runtime. module: the compacted network as a program for torch.export.load.
    store
        How to store the kept weights in a prunus file; what that does to the accuracy is measured.
    batch
        Images in a batch, for the measured speed.
    threads
        Threads to use (default: as many as there are processors).
    data
        Folder with the data sets (default: that of the run, or data).
    download
        Fetch missing data from its official place.
    """
    from prunus.deployment import deploy as make
    from prunus.deployment.finding import accuracy, example, find
    from prunus.deployment.writing import write
    from prunus.errors import SettingError
    from prunus.tables import percent, text_table

    if store != "fp32" and format != "prunus":
        raise SettingError(f"--store {store} is for --format prunus; {format} files hold fp32")
    if batch < 1:
        raise SettingError(f"--batch {batch}: a batch has at least one image")
    found = find(ticket, task, data, download=download)
    images = example(found.task, batch)
    deployed = make(found.task.build(), found.ticket, images, weights="ticket", threads=threads)
    path = out or Path("model").with_suffix(_SUFFIXES[format])
    write(deployed, path, format, store)
    print(deployed.report())
    networks = {"dense": deployed.dense, "deployed": deployed}
    if store != "fp32":
        networks[f"deployed, {store}"] = deployed.stored(store)
    accuracies = {name: accuracy(found.task, network) for name, network in networks.items()}
    splits = list(accuracies["dense"])
    rows = [[name, *(percent(value[s]) for s in splits)] for name, value in accuracies.items()]
    print(f"\n{text_table(['accuracy', *splits], rows)}")
    print(f"\nFrom {found.path}\nWritten: {path} ({path.stat().st_size:,} bytes)")


_SUFFIXES = {"prunus": ".prunus", "onnx": ".onnx", "module": ".pt2"}

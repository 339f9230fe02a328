"""`prunus deploy`: from a trained ticket to a file that runs fast."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from prunus.cli.options import FILES, MACHINE, WHAT, Flag, check_threads
from prunus.cli.output import AsJson, answering, next_step
from prunus.cli.trust import leads_out
from prunus.errors import SettingError
from prunus.files import inside, resolved
from prunus.lookup import trusting

if TYPE_CHECKING:
    from torch import Tensor

    from prunus.deployment.deployed import Deployed, Store
    from prunus.tasks import MetricInfo, Task
    from prunus.tickets.ticket import Ticket

_SUFFIXES = {"prunus": ".prunus", "onnx": ".onnx", "module": ".pt2"}
_BATCH = 256
"""For measuring how good a network is."""
_CALIBRATION = 128
"""Inputs that show the ranges of activations."""


def deploy(
    ticket: Annotated[Path, Parameter(group=WHAT)],
    *,
    task: Annotated[str | None, Parameter(group=WHAT)] = None,
    format: Annotated[Literal["prunus", "onnx", "module"] | None, Parameter(group=WHAT)] = None,
    store: Annotated[Literal["fp32", "fp16", "int8"] | None, Parameter(group=WHAT)] = None,
    compute: Annotated[Literal["fp32", "int8"], Parameter(group=WHAT)] = "fp32",
    batch: Annotated[int, Parameter(group=MACHINE)] = 16,
    threads: Annotated[int | None, Parameter(group=MACHINE)] = None,
    out: Annotated[Path | None, Parameter(group=FILES)] = None,
    data: Annotated[Path | None, Parameter(group=FILES)] = None,
    download: Annotated[Flag, Parameter(group=FILES)] = False,
    json: Annotated[AsJson, Parameter(group=FILES)] = False,
) -> None:
    """Make a trained sparse network small and fast, and write it to one file.

    Prints what became of it: weights and multiply-adds, file size, the difference from the same
    network in PyTorch, the task's metrics before and after, and measured speed.

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
        Runtime. module: the compacted network as a program for torch.export.load. (Default: prunus,
        or module for a network that the runtime cannot run.)
    store
        How to store the kept weights in a prunus file (default: fp32, or int8 if layers compute in
        int8); what that does to the metrics is measured.
    compute
        int8: layers that gain speed by it multiply integers of eight bits, weights and activations,
        for a prunus file; what that does to the metrics is measured. Ranges of activations are
        found with training data.
    batch
        Samples in a batch, for the measured speed.
    threads
        Threads to use (default: as many as there are processors).
    data
        Folder with the data sets (default: that of the run, or data).
    download
        Fetch missing data from its official place.
    json
        Print all of that as one JSON document; messages go to stderr.
    """
    from prunus.deployment import deploy as make
    from prunus.tables import text_table

    for option, value in (("store", store or "fp32"), ("compute", compute)):
        if value != "fp32" and format not in (None, "prunus"):
            raise SettingError(f"--{option} {value} is for --format prunus; {format} is in fp32")
    store = store or compute
    if batch < 1:
        raise SettingError(f"--batch {batch}: a batch has at least one sample")
    check_threads(threads)
    with answering(as_json=json) as answer:
        trained = _find(ticket, task, data, download=download)
        example = example_of(trained.task, batch)
        deployed = make(
            trained.task.build(),
            trained.ticket,
            example,
            weights="ticket",
            threads=threads,
            images=trained.task.images,
        )
        if format is None:
            format = "module" if deployed.graph is None else "prunus"
        path = out or Path("model").with_suffix(_SUFFIXES[format])
        networks = {"plain": deployed.plain, "deployed": deployed}
        if compute == "int8":
            deployed = deployed.int8(calibration_of(trained.task))
        _write(deployed, path, format, store)
        report = deployed.report()
        print(report)
        if report.int8_layers:
            networks["computes in int8"] = deployed
        elif compute == "int8":
            print("\nNo layer is dense enough to gain by int8: all compute in fp32.")
        if store != "fp32":
            networks[f"stored in {store}"] = deployed.stored(store)
        values = {name: _measure(trained.task, network) for name, network in networks.items()}
        columns = list(values["plain"])
        rows = [
            [name, *(info.text(value) for info, value in own.values())]
            for name, own in values.items()
        ]
        size = path.stat().st_size
        print(f"\n{text_table(['network', *columns], rows)}")
        print(f"\nFrom {trained.path}\nWritten: {path} ({size:,} bytes)")
        if format == "prunus":
            next_step("python", "-m", "prunus_runtime", "serve", path)
        metrics = {
            name: {column: value for column, (_, value) in own.items()}
            for name, own in values.items()
        }
        about = {"ticket": trained.path, "file": path, "format": format, "bytes": size}
        answer({**about, "metrics": metrics, **report.as_dict()})


@dataclass(frozen=True)
class _TrainedNetwork:
    """A ticket with trained weights, and its task with the data as the run split them."""

    path: Path
    ticket: Ticket
    task: Task


def _find(
    place: Path, task: str | None, data: Path | None, *, download: bool = False
) -> _TrainedNetwork:
    """The trained network in a ticket file, or the last one of a run folder."""
    from prunus.tickets.ticket import Ticket

    path = _last_ticket(place) if place.is_dir() else place
    ticket = Ticket.load(path)
    if ticket.manifest.rewind_point is not None:
        raise SettingError(
            f"{path} holds early weights, to re-train from: run prunus retrain {path} first, and "
            "deploy the run that it makes"
        )
    return _TrainedNetwork(path, ticket, task_of(path, ticket, task, data, download=download))


def task_of(
    path: Path, ticket: Ticket, task: str | None, data: Path | None, *, download: bool = False
) -> Task:
    """The task of a ticket, or another one, with the data as the run split them that wrote it."""
    from prunus.runs.settings import TaskOfRun
    from prunus.runs.settings_file import read_settings
    from prunus.tasks import load_task

    name = task or ticket.manifest.task
    if not name:
        raise SettingError(f"{path} does not say which task it is for: give --task")
    # The run that wrote the ticket, if it still lies in its folder.
    file = resolved(path).parent.parent / "settings.yaml"
    content = read_settings(file) if file.exists() else {}
    try:
        run = TaskOfRun.parse(content)
    except SettingError as error:
        raise SettingError(f"{file}: {error}") from error
    if data is None and leads_out(run.data_root, "data_root", file.parent):
        raise SettingError(
            f"{file}: data_root={str(run.data_root)!r} leads out of the folder of this file: give "
            "--data"
        )
    with trusting(task or ""):
        found = load_task(name, data or run.data_root, run.data, fetch_missing=download)
        run.check_code(name)
    return found


def _last_ticket(folder: Path) -> Path:
    from prunus.runs.results import read_results

    results = read_results(folder)
    if results is None:
        raise SettingError(f"{folder} is not the folder of a run: it has no results.json")
    for stage in reversed(results.stages):
        if stage.ticket:
            if not inside(stage.ticket, folder):
                raise SettingError(f"{folder}: the ticket {stage.ticket!r} is in another folder")
            return folder / stage.ticket
    raise SettingError(f"the run in {folder} has not finished a network yet: resume it first")


def example_of(task: Task, batch: int) -> Tensor:
    """A batch of the task's own inputs."""
    import torch

    from prunus.tasks.data import LoaderOptions

    loader = task.data.evaluation("test", LoaderOptions(batch, device=torch.device("cpu")))
    inputs: Tensor = next(iter(loader.epoch(0)))[0]
    return inputs[torch.arange(batch) % len(inputs)]  # again from the start where there are fewer


def calibration_of(task: Task) -> Tensor:
    """Some inputs that the network was trained on."""
    import torch

    from prunus.tasks.data import LoaderOptions

    loader = task.data.training(LoaderOptions(1, device=torch.device("cpu")), seed=0)
    return torch.cat([batch[0] for batch in islice(loader.epoch(0), _CALIBRATION)])


def _measure(task: Task, network: Any) -> dict[str, tuple[MetricInfo, float]]:
    """The metrics of a network on each split that is held out."""
    import torch

    from prunus.tasks.data import LoaderOptions

    found = {}
    options = LoaderOptions(_BATCH, device=torch.device("cpu"))
    for split in ("validation", "test"):
        totals: dict[Any, Tensor] = {}
        with torch.no_grad():
            for batch in task.data.evaluation(split, options).epoch(0):
                output = network(batch[0])
                for metric in task.metrics:
                    measured = metric.measure(output, batch).double()
                    totals[metric] = totals[metric] + measured if metric in totals else measured
        for metric, total in totals.items():
            found[f"{split} {metric.info.name}"] = (metric.info, metric.finish(total))
    return found


def _write(deployed: Deployed, path: Path, format: str, store: Store = "fp32") -> None:
    """Write `prunus`, `onnx`, or `module`: a program that `torch.export.load` reads."""
    import io

    import torch

    from prunus.deployment.onnx import export_onnx
    from prunus.deployment.quiet import quiet
    from prunus.files import write_atomically

    if format == "prunus":
        deployed.save(path, store)
    elif format == "onnx":
        export_onnx(deployed.module, path, deployed.example_input)
    else:
        like = deployed.example_input
        example = like.new_zeros((2, *like.shape[1:]))
        batch = ({0: torch.export.Dim.DYNAMIC},)
        buffer = io.BytesIO()
        with quiet():
            program = torch.export.export(deployed.module, (example,), dynamic_shapes=batch)
            torch.export.save(program, buffer)
        write_atomically(path, buffer.getvalue())

"""Records made by hand, without any files."""

from pathlib import Path

from prunus.report.records import Record
from prunus.runs.results import StageResult


def measured(value, name="accuracy", validation=None, samples=None):
    """By default, validation data say the same as test data."""
    judged = value if validation is None else validation
    counts = {"validation": samples, "test": samples} if samples else {}
    return StageResult(stage="s", epochs=5, density=0.5, test={name: value},
                       validation={name: judged}, samples=counts)  # fmt: skip


def record(row, seed, density, accuracy, *, number=1, run="a", epochs=10, **changes):
    values = {
        "task": "t", "row": row, "command": "search", "method": row, "parameters": {"run": run},
        "seed": seed, "folder": Path(f"{row}-{run}-{seed}"), "stage": f"round {number}",
        "round": number, "density": density, "epochs": epochs * number,
        "measured": {"re-trained": measured(accuracy)} if accuracy is not None else {},
    }  # fmt: skip
    return Record(**{**values, **changes})


def dense(seed, accuracy, **changes):
    return record("dense", seed, 1.0, None, command="train", method=None,
                  measured={"trained": measured(accuracy)}, **changes)  # fmt: skip


def seeds(row, density, values, **changes):
    return [record(row, seed, density, value, **changes) for seed, value in enumerate(values)]

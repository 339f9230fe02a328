"""Tickets on the Hugging Face Hub, or in a folder that is used like one of its repositories.

Only two files are written and one is read: the ticket, which runs no code, and the card.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from prunus.errors import TicketError, first_line, how_to_install
from prunus.files import expanded, write_atomically
from prunus.tables import percent

if TYPE_CHECKING:
    from prunus.tickets.ticket import Ticket

TICKET, CARD = "ticket.safetensors", "README.md"
PAPER = "https://arxiv.org/abs/1912.04427"
TAGS = ["sparsity", "pruning", "lottery-ticket-hypothesis"]


def is_folder(repo_id: str | os.PathLike[str]) -> bool:
    """Whether this is a path rather than the name of a repository."""
    text = os.fspath(repo_id)
    return isinstance(repo_id, Path) or text.startswith((".", "~", os.sep)) or Path(text).is_dir()


def push(
    ticket: Ticket, repo_id: str | os.PathLike[str], card: str, *, private: bool, token: str | None
) -> str:
    """Write ticket and card, unless there is a card already; returns where they are."""
    if is_folder(repo_id):
        folder = expanded(repo_id)
        _write(ticket, card, folder, keep_card=(folder / CARD).exists())
        return str(folder)
    api, name = _hub().HfApi(token=token), os.fspath(repo_id)
    url = str(api.create_repo(name, private=private, exist_ok=True))
    with TemporaryDirectory() as place:
        _write(ticket, card, Path(place), keep_card=api.file_exists(name, CARD))
        message = f"A ticket of density {percent(ticket.mask.density)}"
        api.upload_folder(repo_id=name, folder_path=place, commit_message=message)
    return url


def pull(repo_id: str | os.PathLike[str], *, revision: str | None, token: str | None) -> Path:
    """The ticket's file: in the folder, or downloaded."""
    if is_folder(repo_id):
        return expanded(repo_id) / TICKET
    try:
        file = _hub().hf_hub_download(
            os.fspath(repo_id), TICKET, revision=revision, token=token, library_name="prunus"
        )
    except (OSError, ValueError) as error:  # no such repository, no network, not a name
        raise TicketError(f"no ticket could be had from {repo_id}: {first_line(error)}") from error
    return Path(file)


def make_card(
    ticket: Ticket,
    repo_id: str | os.PathLike[str],
    *,
    licence: str | None,
    base_model: str | None,
) -> str:
    """A model card: what this is, from what, how dense, how good, and how to train it again."""
    manifest, name = ticket.manifest, _plain(Path(repo_id).name or os.fspath(repo_id))
    header: dict[str, Any] = {"library_name": "prunus", "tags": [*TAGS, manifest.method or "mask"]}
    header |= {"license": licence} if licence else {}
    header |= {"base_model": base_model} if base_model else {}
    what = {
        "Method": manifest.method,
        "Task": manifest.task,
        "From": base_model or "",
        "Density": f"{percent(ticket.mask.density)}: {ticket.mask.kept:,} of "
        f"{ticket.mask.total:,} maskable weights; {percent(ticket.network_density)} of the whole "
        "network, buffers included",
        "Weights": "those at the end of training"
        if manifest.rewind_point is None
        else f"those after step {manifest.rewind_point}, to be trained from there",
        "Seed": "" if manifest.seed is None else str(manifest.seed),
        "Made with": ", ".join(f"{n} {v}" for n, v in manifest.versions.items()),
        "Licence": licence or "not stated",
    }
    parts = [
        # JSON is YAML, in which nothing that a ticket says can break out of its quotes.
        "\n".join(
            ["---", *(f"{key}: {json.dumps(value)}" for key, value in header.items()), "---"]
        ),
        f"# {name}",
        "A ticket of Prunus: a binary mask, and the weights that it keeps. Prunus implements "
        f"[Continuous Sparsification]({PAPER}) and its rivals.",
        _table({key: _plain(value) for key, value in what.items() if value}),
    ]
    if manifest.metrics:
        parts += ["## Metrics", _table({_plain(n): f"{v:g}" for n, v in manifest.metrics.items()})]
    parts += ["## Train it again", _retrain(os.fspath(repo_id), manifest.task)]
    settings = json.dumps(manifest.settings, indent=1, sort_keys=True)
    parts += ["## Settings", f"```json\n{settings.replace('`', '')}\n```"]
    return "\n\n".join(parts) + "\n"


def _retrain(repo_id: str, task: str) -> str:
    where = json.dumps(repo_id)
    code = f"import prunus\n\nticket = prunus.Ticket.from_pretrained({where})"
    code = f"{code}\nticket.apply(model)  # your model: train it as usual, then prunus.strip(model)"
    block = f"```python\n{code}\n```"
    if task:
        block += f"\n\n```bash\nprunus retrain {TICKET}  # task {_plain(task)}\n```"
    return block


def _table(rows: Mapping[str, str]) -> str:
    lines = ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """The text without anything special to Markdown or HTML: tickets come from anywhere."""
    return re.sub(r"[^\w .,:;/+%()=-]", "", " ".join(text.split()))


def _write(ticket: Ticket, card: str, folder: Path, *, keep_card: bool) -> None:
    ticket.save(folder / TICKET)
    if not keep_card:
        write_atomically(folder / CARD, card)


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise TicketError(
            f"the Hub needs huggingface_hub: {how_to_install('hub')}; folders work without it"
        ) from error
    return huggingface_hub

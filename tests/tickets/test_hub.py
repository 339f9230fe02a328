"""Tickets on the Hub: a folder, a cache without network, and an API that notes what it gets."""

import pytest
import torch
from torch import nn

import prunus
from prunus.tickets import hub


def ticket(**manifest):
    mask = prunus.Mask({"weight": torch.tensor([[True, False], [False, False]])})
    weights = {"weight": torch.tensor([[2.0, 3.0], [4.0, 5.0]])}
    return prunus.Ticket(mask, weights, prunus.Manifest(**manifest))


def test_a_folder_works_like_a_repository(tmp_path):
    shared = ticket(method="cs", task="digits/mlp", metrics={"accuracy": 0.5}, seed=3)
    folder = tmp_path / "mine"
    where = shared.push_to_hub(folder, licence="apache-2.0", base_model="bert-base")
    assert where == str(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["README.md", "ticket.safetensors"]
    assert prunus.Ticket.from_pretrained(folder) == shared
    assert prunus.Ticket.from_pretrained(str(folder)) == shared
    model = nn.Linear(2, 2, bias=False)
    prunus.strip(prunus.Ticket.from_pretrained(where).apply(model))
    assert model.weight.tolist() == [[2.0, 0.0], [0.0, 0.0]]


def test_the_card_says_what_from_what_how_dense_and_how_to_train_it_again(tmp_path):
    shared = ticket(method="cs", task="digits/mlp", metrics={"accuracy": 0.5}, rewind_point=7)
    shared.push_to_hub(tmp_path, licence="apache-2.0", base_model="bert-base")
    card = (tmp_path / "README.md").read_text()
    header = pytest.importorskip("huggingface_hub").ModelCard(card).data.to_dict()
    assert header["library_name"] == "prunus" and header["license"] == "apache-2.0"
    assert header["base_model"] == "bert-base" and "cs" in header["tags"]
    for line in (
        "| Density | 25.00%: 1 of 4 maskable weights; 25.00% of the whole network, buffers "
        "included |",
        "| From | bert-base |",
        "| Weights | those after step 7, to be trained from there |",
        "| Licence | apache-2.0 |",
        "| accuracy | 0.5 |",
        "prunus retrain ticket.safetensors  # task digits/mlp",
    ):
        assert line in card
    assert "sparsity_config" not in card


def test_a_card_that_is_there_stays(tmp_path):
    (tmp_path / "README.md").write_text("mine\n")
    ticket().push_to_hub(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine\n"


def test_what_a_ticket_says_cannot_break_out_of_its_card(tmp_path):
    bad = "x\n---\n| <script>alert(1)</script> ```\n# [click](javascript:1)"
    ticket(
        method=bad, task=bad, settings={bad: "```\n<b>"}, metrics={bad: 1.0}, versions={"p": bad}
    ).push_to_hub(tmp_path)
    card = (tmp_path / "README.md").read_text()
    header, _, body = card.removeprefix("---\n").partition("\n---\n")
    assert {line.partition(":")[0] for line in header.splitlines()} == {"library_name", "tags"}
    prose, _, code = body.partition("## Settings")
    assert "<" not in prose and "](javascript" not in prose
    assert body.count("```") == 6 and code.endswith("\n```\n")  # nothing ends a block early


def test_a_ticket_in_the_cache_is_read_without_a_network(tmp_path, monkeypatch):
    hf = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hf.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hf.constants, "HF_HUB_CACHE", str(tmp_path))
    commit, repository = "a" * 40, tmp_path / "models--me--small"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shared = ticket()
    shared.save(repository / "snapshots" / commit / hub.TICKET)
    assert prunus.Ticket.from_pretrained("me/small") == shared
    with pytest.raises(prunus.TicketError, match="no ticket could be had from me/other"):
        prunus.Ticket.from_pretrained("me/other")
    with pytest.raises(prunus.TicketError, match="no ticket could be had from not a name"):
        prunus.Ticket.from_pretrained("not a name")


def test_pushing_to_the_hub_sends_two_files(monkeypatch):
    hf = pytest.importorskip("huggingface_hub")
    sent = {}

    class Api:
        def __init__(self, token):
            sent["token"] = token

        def create_repo(self, name, private, exist_ok):
            assert exist_ok
            sent.update(name=name, private=private)
            return f"https://hub/{name}"

        def file_exists(self, name, file):
            return (name, file) == ("me/has-a-card", "README.md")

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            from pathlib import Path

            assert repo_id == sent["name"] and "25.00%" in commit_message
            sent["files"] = sorted(p.name for p in Path(folder_path).iterdir())

    monkeypatch.setattr(hf, "HfApi", Api)
    assert ticket().push_to_hub("me/small", private=True, token="t") == "https://hub/me/small"
    assert sent == {
        "token": "t",
        "name": "me/small",
        "private": True,
        "files": ["README.md", "ticket.safetensors"],
    }
    ticket().push_to_hub("me/has-a-card")
    assert sent["files"] == ["ticket.safetensors"]


def test_what_comes_from_the_hub_is_checked_like_any_ticket(tmp_path):
    (tmp_path / hub.TICKET).write_bytes(b"\x80\x04pickle")
    with pytest.raises(prunus.TicketError, match="not a safetensors file"):
        prunus.Ticket.from_pretrained(tmp_path)
    with pytest.raises(prunus.TicketError, match="cannot read the ticket"):
        prunus.Ticket.from_pretrained(tmp_path / "nothing")


def test_without_the_extra_folders_still_work(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    ticket().push_to_hub(tmp_path)
    assert prunus.Ticket.from_pretrained(tmp_path) == ticket()
    with pytest.raises(prunus.TicketError, match=r"pip install .*\[hub\]"):
        ticket().push_to_hub("me/small")

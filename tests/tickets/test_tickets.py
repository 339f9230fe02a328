"""Tickets: exact round trips, small files, honest provenance, atomic saves, strict application."""

from __future__ import annotations

import copy
import os
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F

import prunus
from prunus import AttachError, Manifest, Mask, MaskError, Ticket, TicketError
from support.processes import run

torch.set_num_threads(1)


def network(hidden: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, hidden), nn.BatchNorm1d(hidden), nn.Linear(hidden, 2))


def mask_for(model: nn.Module, density: float = 0.4) -> Mask:
    generator = torch.Generator().manual_seed(3)
    chosen = {n: p for n, p in model.named_parameters() if p.dim() > 1}
    return Mask({n: torch.rand(p.shape, generator=generator) < density for n, p in chosen.items()})


def ticket_for(model: nn.Module, density: float = 0.4, **options: bool) -> Ticket:
    return Ticket(mask_for(model, density), model.state_dict(), Manifest(task="t"), **options)


def round_trip(ticket: Ticket, folder: Path) -> Ticket:
    return Ticket.load(ticket.save(folder / "a.ticket.safetensors"))


def assert_same(loaded: Ticket, ticket: Ticket) -> None:
    assert loaded == ticket
    assert loaded.mask == ticket.mask
    assert loaded.manifest == ticket.manifest
    assert loaded.whole == ticket.whole
    assert list(loaded.weights) == list(ticket.weights)
    for name, tensor in ticket.weights.items():
        assert loaded.weights[name].dtype == tensor.dtype
        assert torch.equal(loaded.weights[name], tensor), name


TENSORS = {
    "float32": torch.randn(3, 5),
    "float64": torch.randn(3, 5, dtype=torch.float64),
    "float16": torch.randn(3, 5).half(),
    "bfloat16": torch.randn(3, 5).bfloat16(),
    "complex64": torch.randn(3, 5, dtype=torch.complex64),
    "int8": torch.randint(-128, 127, (3, 5), dtype=torch.int8),
    "int16": torch.randint(-(2**15), 2**15, (3, 5), dtype=torch.int16),
    "int32": torch.randint(-(2**31), 2**31, (3, 5), dtype=torch.int32),
    "int64": torch.tensor([2**62 + 1, -(2**63), 7]),
    "uint8": torch.randint(0, 255, (3, 5), dtype=torch.uint8),
    "bool": torch.rand(3, 5) < 0.5,
    "scalar": torch.tensor(3.25),
    "int scalar": torch.tensor(41),
    "empty": torch.zeros(0),
    "empty matrix": torch.zeros(3, 0, 2, dtype=torch.float64),
    "transposed": torch.randn(5, 3).t(),
    "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "expanded": torch.randn(3, 1).expand(3, 4),
    "extremes": torch.tensor([1e-45, -0.0, 3.4e38]),
    "ein Gewicht, größer: 重み 🌱": torch.randn(2),
}


class TestRoundTrip:
    @pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
    @pytest.mark.parametrize("name", TENSORS)
    def test_every_tensor_is_exact(self, tmp_path: Path, name: str, masked: bool) -> None:
        tensor = TENSORS[name]
        keep = torch.arange(tensor.numel()).view(tensor.shape) % 3 == 0
        ticket = Ticket(Mask({name: keep} if masked else {}), {name: tensor})
        loaded = round_trip(ticket, tmp_path)
        assert_same(loaded, ticket)
        expected = torch.where(keep, tensor, torch.zeros_like(tensor)) if masked else tensor
        assert torch.equal(loaded.weights[name], expected)
        if not tensor.is_complex():  # equality does not distinguish -0.0 from 0.0
            assert torch.equal(loaded.weights[name].signbit(), expected.signbit())

    @pytest.mark.parametrize("whole", [False, True])
    def test_all_of_them_together(self, tmp_path: Path, whole: bool) -> None:
        mask = Mask({n: torch.rand(t.shape) < 0.5 for n, t in TENSORS.items() if "empty" not in n})
        assert_same(
            round_trip(Ticket(mask, TENSORS, whole=whole), tmp_path),
            Ticket(mask, TENSORS, Manifest(), whole=whole),
        )

    @pytest.mark.parametrize("density", [0.0, 0.5, 1.0])
    def test_densities(self, tmp_path: Path, density: float) -> None:
        ticket = ticket_for(network(), density)
        assert_same(round_trip(ticket, tmp_path), ticket)

    def test_nothing_at_all(self, tmp_path: Path) -> None:
        assert_same(round_trip(ticket := Ticket(Mask({}), {}), tmp_path), ticket)

    def test_whole_keeps_the_removed_weights(self, tmp_path: Path) -> None:
        model = network()
        whole = round_trip(ticket_for(model, whole=True), tmp_path)
        assert torch.equal(whole.weights["0.weight"], model[0].weight)
        partial = round_trip(ticket_for(model), tmp_path)
        assert not partial.weights["0.weight"][~partial.mask["0.weight"]].any()
        assert whole != partial
        whole.apply(model)
        assert torch.equal(model[0].weight != 0, whole.mask["0.weight"])

    def test_tied_weights(self, tmp_path: Path) -> None:
        def tied() -> nn.ModuleDict:
            model = nn.ModuleDict({"a": nn.Embedding(5, 4), "b": nn.Linear(4, 5, bias=False)})
            model["b"].weight = model["a"].weight
            return model

        method = prunus.IterativeMagnitudePruning(model := tied(), steps=1, select="all", rate=0.5)
        method.step()
        method.end_round()
        ticket = round_trip(method.ticket(), tmp_path)
        assert list(ticket.weights) == ["a.weight"]
        applied = ticket.apply(tied())
        assert torch.equal(applied["b"].weight, applied["a"].weight)
        assert torch.equal(applied["a"].weight, model["a"].weight)
        assert int((applied["b"].weight != 0).sum()) == 10

    def test_batch_norm_statistics_come_back(self, tmp_path: Path) -> None:
        model = network()
        model(torch.randn(8, 4))
        loaded = round_trip(ticket_for(model), tmp_path)
        fresh = loaded.apply(network())
        assert torch.equal(fresh[1].running_var, model[1].running_var)
        assert int(fresh[1].num_batches_tracked) == 1

    def test_other_tools_can_open_the_file(self, tmp_path: Path) -> None:
        ticket = ticket_for(network())
        path = ticket.save(tmp_path / "a.safetensors")
        with safe_open(path, "pt") as file:
            assert set(file.keys()) == {"manifest", "masks", "values.float32", "values.int64"}
            metadata = file.metadata()
            assert metadata["format"] == "prunus.ticket"
            assert metadata["version"] == "1"
            assert metadata["sha256"] == ticket.content_hash

    def test_a_dtype_that_does_not_fit_in_a_file(self, tmp_path: Path) -> None:
        ticket = Ticket(Mask({}), {"odd": torch.zeros(2, dtype=torch.complex128)})
        with pytest.raises(TicketError, match="odd is complex128"):
            ticket.save(tmp_path / "a")
        assert not list(tmp_path.iterdir())


class TestValue:
    def test_mutating_the_input_changes_nothing(self) -> None:
        model = network()
        settings = {"lr": [0.1]}
        mask = mask_for(model)
        ticket = Ticket(mask, model.state_dict(), Manifest(settings=settings))
        twin = Ticket(mask, model.state_dict(), copy.deepcopy(ticket.manifest))
        settings["lr"].append(7)
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.fill_(9)
        assert ticket == twin
        assert ticket.manifest.settings == {"lr": [0.1]}

    def test_the_applied_model_shares_nothing_with_the_ticket(self) -> None:
        ticket = ticket_for(network())
        before = Ticket(ticket.mask, ticket.weights, ticket.manifest)
        model = ticket.apply(network())
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                tensor.fill_(1)
        assert Ticket(ticket.mask, ticket.weights, ticket.manifest) == before

    def test_weights_cannot_be_replaced(self) -> None:
        with pytest.raises(TypeError):
            ticket_for(network()).weights["0.weight"] = torch.zeros(1)  # type: ignore[index]

    def test_content_hash(self) -> None:
        weights = {"w": torch.tensor([1.0, 2.0]), "v": torch.tensor([3.0])}
        mask = Mask({"w": torch.tensor([True, False])})
        manifest = Manifest(task="a")
        ticket = Ticket(mask, weights, manifest)
        assert len(ticket.content_hash) == 64
        assert Ticket(mask, {**weights, "w": torch.tensor([1.0, 9.0])}, manifest) == ticket, (
            "a removed weight is no content"
        )
        different = [
            Ticket(mask, {**weights, "w": torch.tensor([1.5, 2.0])}, manifest),
            Ticket(mask, {**weights, "v": torch.tensor([3.0]).double()}, manifest),
            Ticket(mask, {**weights, "v": torch.tensor([[3.0]])}, manifest),
            Ticket(Mask({"w": torch.tensor([False, True])}), weights, manifest),
            Ticket(Mask({}), weights, manifest),
            Ticket(mask, weights, Manifest(task="b", created=manifest.created)),
            Ticket(mask, weights, manifest, whole=True),
        ]
        hashes = {t.content_hash for t in (ticket, *different)}
        assert len(hashes) == len(different) + 1
        assert len({ticket, *different}) == len(different) + 1
        assert ticket != "ticket"

    def test_deepcopy(self) -> None:
        ticket = ticket_for(network(), whole=True)
        twin = copy.deepcopy(ticket)
        assert_same(twin, ticket)
        assert twin.weights["0.weight"] is not ticket.weights["0.weight"]

    def test_printed(self) -> None:
        mask = Mask({"w": torch.tensor([True, False, False, False])})
        ticket = Ticket(mask, {"w": torch.ones(4)}, Manifest(method="cs"))
        assert repr(ticket) == "<Ticket by cs, density 25.00%>"
        assert "a mask" in repr(Ticket(mask, {"w": torch.ones(4)}))

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ({}, "the mask covers w, but there is no weight"),
            ({"w": torch.ones(3)}, r"w is \(2,\) in the mask but \(3,\) in the weights"),
        ],
    )
    def test_mask_and_weights_must_fit(self, weights: dict[str, Tensor], message: str) -> None:
        with pytest.raises(TicketError, match=message):
            Ticket(Mask({"w": torch.tensor([True, False])}), weights)


class TestNotFinite:
    KEEP = Mask({"w": torch.tensor([True, False])})

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_a_kept_weight(self, bad: float) -> None:
        with pytest.raises(TicketError, match="w holds NaN or infinite"):
            Ticket(self.KEEP, {"w": torch.tensor([bad, 1.0])})

    def test_an_unmasked_weight(self) -> None:
        with pytest.raises(TicketError, match="bias holds NaN"):
            Ticket(self.KEEP, {"w": torch.ones(2), "bias": torch.tensor(float("nan"))})

    def test_a_removed_weight_does_not_matter(self, tmp_path: Path) -> None:
        ticket = Ticket(self.KEEP, {"w": torch.tensor([1.0, float("nan")])})
        assert round_trip(ticket, tmp_path).weights["w"].tolist() == [1.0, 0.0]

    def test_a_removed_weight_of_a_whole_ticket_does(self) -> None:
        with pytest.raises(TicketError, match="w holds NaN"):
            Ticket(self.KEEP, {"w": torch.tensor([1.0, float("nan")])}, whole=True)

    def test_buffers_may_hold_infinities(self, tmp_path: Path) -> None:
        model = nn.Linear(2, 2)
        model.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(3))
        loaded = round_trip(ticket_for(model), tmp_path)
        assert torch.equal(loaded.weights["causal"], model.causal)


class TestManifest:
    def test_every_field_comes_back(self, tmp_path: Path) -> None:
        manifest = Manifest(
            task="digits/größe",
            method="cs",
            settings={"mask_init": -0.1, "nested": {"a": [1, None, True, "x"]}, "tuple": (1, 2)},
            seed=7,
            rewind_point=100,
            metrics={"accuracy": 0.91},
            versions={"prunus": "0"},
            created="2026-01-01T00:00:00+00:00",
        )
        ticket = Ticket(mask_for(model := network()), model.state_dict(), manifest)
        loaded = round_trip(ticket, tmp_path).manifest
        assert loaded == manifest
        assert loaded.settings["tuple"] == [1, 2]

    def test_defaults(self) -> None:
        manifest = Manifest()
        assert manifest.versions["prunus"] == prunus.__version__
        assert manifest.versions["torch"] == torch.__version__
        assert {"python", "safetensors"} < manifest.versions.keys()
        assert manifest.created == ""  # equal runs write equal files
        assert (manifest.seed, manifest.rewind_point) == (None, None)

    def test_of_a_method(self) -> None:
        method = prunus.IterativeMagnitudePruning(network(), steps=4, select="linear")
        manifest = method.ticket(task="t", seed=3, metrics={"loss": 1.5}).manifest
        assert (manifest.method, manifest.task, manifest.seed) == ("imp", "t", 3)
        assert manifest.rewind_point == 0
        assert manifest.metrics == {"loss": 1.5}
        assert manifest.settings["steps"] == 4

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("settings", {"f": len}),
            ("settings", {"x": float("nan")}),
            ("metrics", {"loss": torch.tensor(1.0)}),
            ("metrics", [1]),
            ("metrics", {"accuracy": "high"}),
            ("metrics", {"accuracy": True}),
            ("versions", {"torch": 2}),
            ("seed", True),
            ("seed", "7"),
            ("seed", 1.5),
            ("task", None),
            ("created", 5),
        ],
    )
    def test_what_could_not_be_read_back_is_refused_at_once(
        self, field: str, value: object
    ) -> None:
        with pytest.raises(TicketError, match=f"the manifest field '{field}'"):
            Manifest(**{field: value})  # type: ignore[arg-type]


class ResNet20(nn.Module):
    """Widths 16-32-64, as in the paper."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        widths = [16, *[16] * 3, *[32] * 3, *[64] * 3]
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "conv1": nn.Conv2d(n, m, 3, padding=1, bias=False),
                    "norm1": nn.BatchNorm2d(m),
                    "conv2": nn.Conv2d(m, m, 3, padding=1, bias=False),
                    "norm2": nn.BatchNorm2d(m),
                }
            )
            for n, m in pairwise(widths)
        )
        self.fc = nn.Linear(64, 10)


def vgg() -> nn.Sequential:
    widths = [3, 32, 64, 128, 128]
    layers: list[nn.Module] = []
    for n, m in pairwise(widths):
        layers += [nn.Conv2d(n, m, 3), nn.BatchNorm2d(m), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 512), nn.Linear(512, 10))


class TestSize:
    @pytest.mark.parametrize(
        ("build", "density"),
        [(ResNet20, 0.05), (vgg, 0.02), (lambda: network(2000), 0.3)],
        ids=["resnet20", "vgg", "mlp"],
    )
    def test_within_3_percent_of_the_content(self, tmp_path: Path, build, density: float) -> None:
        ticket = ticket_for(build(), density)
        mask = ticket.mask
        unmasked = sum(t.nbytes for n, t in ticket.weights.items() if n not in mask)
        ideal = 4 * mask.kept + mask.total / 8 + unmasked
        size = ticket.save(tmp_path / "a").stat().st_size
        assert ideal < size < 1.03 * ideal, f"{size} bytes, {100 * (size / ideal - 1):.2f}% more"

    def test_whole(self, tmp_path: Path) -> None:
        ticket = ticket_for(ResNet20(), 0.05, whole=True)
        ideal = sum(t.nbytes for t in ticket.weights.values()) + ticket.mask.total / 8
        assert ticket.save(tmp_path / "a").stat().st_size < 1.03 * ideal


OPTIMISERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1},
    "Adam": {"lr": 0.01, "weight_decay": 0.1},
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "RMSprop": {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1},
    "Adagrad": {"lr": 0.1, "weight_decay": 0.1},
    "Adadelta": {"lr": 1.0, "weight_decay": 0.1},
    "NAdam": {"lr": 0.01, "weight_decay": 0.1},
    "Rprop": {"lr": 0.01},
}


class TestApply:
    @pytest.mark.parametrize("name", OPTIMISERS)
    def test_then_train_keeps_zeros(self, tmp_path: Path, name: str) -> None:
        ticket = round_trip(ticket_for(network()), tmp_path)
        model = ticket.apply(network())
        optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMISERS[name])
        start = model[0].weight.detach().clone()
        for _ in range(10):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(16, 4)), torch.randint(2, (16,))).backward()
            optimizer.step()
        for layer, key in ((model[0], "0.weight"), (model[2], "2.weight")):
            assert torch.equal(layer.weight != 0, ticket.mask[key])
        assert not torch.equal(model[0].weight, start)

    def test_returns_the_model_with_the_weights_of_the_ticket(self) -> None:
        source = network()
        ticket = ticket_for(source)
        target = network()
        with torch.no_grad():
            for tensor in target.state_dict().values():
                tensor.add_(1)
        assert ticket.apply(target) is target
        prunus.strip(target)
        for name, tensor in target.state_dict().items():
            assert torch.equal(tensor, ticket.weights[name]), name

    @pytest.mark.parametrize(
        ("model", "message"),
        [
            (network(7), r"0\.weight is \(6, 4\) in the ticket but \(7, 4\) in the model"),
            (nn.Sequential(nn.Linear(4, 6)), r"the model has no 1\.weight \(the ticket has \(6,\)"),
            (
                nn.Sequential(*network(), nn.Linear(2, 2)),
                r"it has no 3\.weight \(the model has \(2, 2\)\)",
            ),
            (
                nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)),
                r"2\.weight is \(2, 6\) in the ticket but \(3, 6\) in the model",
            ),
        ],
        ids=["shape", "fewer", "more", "last shape"],
    )
    def test_to_another_model_changes_nothing(self, model: nn.Module, message: str) -> None:
        before = {k: v.clone() for k, v in model.state_dict().items()}
        ticket = Ticket(mask_for(network()), {n: t + 1 for n, t in network().state_dict().items()})
        with pytest.raises(TicketError, match=message):
            ticket.apply(model)
        after = model.state_dict()
        assert list(after) == list(before)
        assert all(torch.equal(after[k], before[k]) for k in before)

    def test_a_mask_on_a_buffer_changes_nothing(self) -> None:
        model = nn.BatchNorm1d(2)
        before = {k: v.clone() for k, v in model.state_dict().items()}
        weights = {n: t + 1 for n, t in before.items()}
        ticket = Ticket(Mask({"running_mean": torch.tensor([True, False])}), weights)
        with pytest.raises(MaskError, match="running_mean"):
            ticket.apply(model)
        assert all(torch.equal(model.state_dict()[k], before[k]) for k in before)

    def test_to_a_model_under_a_method(self) -> None:
        ticket = ticket_for(network())
        model = ticket.apply(network())
        with pytest.raises(AttachError, match="already under a method"):
            ticket.apply(model)


KILL_WRITERS = """
import os, signal, sys, time
import torch
from prunus import Mask, Ticket

torch.set_num_threads(1)
path, kills = sys.argv[1], int(sys.argv[2])
mask = Mask({"w": torch.ones(300_000).bool()})
tickets = [Ticket(mask, {"w": torch.full((300_000,), float(i))}) for i in (1, 2)]
tickets[0].save(path)
for kill in range(kills):
    writer = os.fork()
    if not writer:
        while True:
            for ticket in tickets:
                ticket.save(path)
    until = time.monotonic() + 0.02 + 0.0017 * kill
    while time.monotonic() < until:  # a reader never sees half a file
        assert Ticket.load(path) in tickets
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    assert Ticket.load(path) in tickets
print("always whole")
"""


class TestSaving:
    @pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
    def test_a_failure_keeps_the_old_ticket(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError("disk full")

        old, new = ticket_for(network()), ticket_for(network(9))
        path = old.save(tmp_path / "a.ticket")
        monkeypatch.setattr(failing, fail)
        with pytest.raises(OSError, match="disk full"):
            new.save(path)
        monkeypatch.undo()
        assert Ticket.load(path) == old
        assert list(tmp_path.iterdir()) == [path]

    def test_killed_while_overwriting(self, tmp_path: Path) -> None:
        assert run("-c", KILL_WRITERS, tmp_path / "a.ticket", 10) == "always whole\n"

    def test_creates_missing_folders(self, tmp_path: Path) -> None:
        ticket = ticket_for(network())
        assert Ticket.load(ticket.save(str(tmp_path / "a" / "b" / "t"))) == ticket


class TestLoadingWhatIsNotATicket:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(TicketError, match=r"cannot read the ticket .*nothing.*No such file"):
            Ticket.load(tmp_path / "nothing")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(TicketError, match=r"cannot read the ticket .*directory"):
            Ticket.load(tmp_path)

    def test_the_folder_of_a_run_names_its_newest_ticket(self, tmp_path: Path) -> None:
        for age, name in enumerate(("round-10", "round-9")):
            saved = ticket_for(network()).save(tmp_path / "tickets" / f"{name}.safetensors")
            os.utime(saved, (100 - age, 100 - age))
        with pytest.raises(TicketError, match=r"such as .*round-10\.safetensors"):
            Ticket.load(tmp_path)

    @pytest.mark.parametrize("content", [b"", b"\0" * 8, b"PK\x03\x04" * 100, b"\xff" * 64])
    def test_other_content(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(TicketError, match=r"a: .*not a safetensors file"):
            Ticket.load(tmp_path / "a")


def test_equal_tickets_are_equal_files(tmp_path):
    ticket = Ticket(Mask({}), {"a": torch.ones(2), "b": torch.zeros(3, dtype=torch.int64)})
    files = {ticket.save(tmp_path / "ticket").read_bytes() for _ in range(20)}
    assert len(files) == 1, "whatever the order of safetensors' own dictionaries"
    assert Ticket.load(tmp_path / "ticket") == ticket

"""A deployed file knows how to be fed: from a user's own folder of JPEGs to labels."""

from __future__ import annotations

import http.client
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import prunus
import prunus_runtime
from prunus.tasks import load_task
from prunus.tasks.data import DataOptions, LoaderOptions
from prunus_runtime import GraphError, Images, InputError, RuntimeFileError
from prunus_runtime.__main__ import main
from prunus_runtime.file import decode, encode
from prunus_runtime.serve import Server
from support.graphs import Builder
from support.serving import serving

COLOURS = {"blue things": (40, 60, 200), "green things": (50, 190, 60), "red things": (200, 50, 40)}
GREY = Images((0.5,), (0.25,), 4, "grey", classes=("a", "b"))
CPU = torch.device("cpu")


def photos(folder: Path, count: int) -> list[tuple[str, Path]]:
    """Noisy images of one colour for each class, of different sizes; with their class."""
    random, made = np.random.default_rng(0), []
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            noise = random.normal(0, 30, (30 + number, 45, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            path = folder / name / f"{number:02}.{'png' if number % 2 else 'jpg'}"
            Image.fromarray(pixels).save(path)
            made.append((name, path))
    return made


def test_from_a_folder_of_photos_to_their_labels(cli: Any, capsys: Any) -> None:
    own = photos(Path("data"), 12)
    status, _, errors = cli(
        *("train", "--task", "image-folder/digits_convnet", "--data", "data", "--epochs", "5"),
        *("--batch-size", "8", "--set", "data.image_size=16", "--set", "engine.accelerator=cpu"),
        *("--set", "recipe.lr=0.05"),
    )
    assert status == 0, errors
    (run,) = Path("runs").iterdir()
    status, _, errors = cli("deploy", run, "--threads", "1", "--batch", "2")
    assert status == 0, errors

    network = prunus_runtime.load("model.prunus", threads=1)
    found = network.classify([path for _, path in own])
    right = [next(iter(names)) == name for names, (name, _) in zip(found, own, strict=True)]
    assert np.mean(right) > 0.9, "as good as in training"
    assert all(abs(sum(names.values()) - 1) < 1e-6 for names in found)

    # What the network gets to see is what it was evaluated on.
    task = load_task("image-folder/digits_convnet", "data", DataOptions(image_size=16))
    images = network.graph.images
    assert images is not None and images == task.images
    test = task.data.splits.test  # type: ignore[attr-defined]
    loader = task.data.evaluation("test", LoaderOptions(len(test), device=CPU))
    wanted = next(iter(loader.epoch(0)))[0].numpy()
    paths = [test.path(number) for number in range(len(test))]
    pixels = np.stack([images.read(path, network.input_shape) for path in paths])
    np.testing.assert_array_equal(images.inputs(pixels, network.input_shape), wanted)
    np.testing.assert_array_equal(network(pixels), network(wanted))

    assert main(["info", "model.prunus"]) == 0
    output = capsys.readouterr().out
    for text in ("RGB", "0 to 255", "0.485, 0.456, 0.406", "becomes 18 pixels", "red things"):
        assert text in output
    name, path = own[-1]
    assert main(["classify", "model.prunus", str(path), "--top", "1"]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: {name} ")


def classifier(
    images: Images | None = GREY, softmax: bool | None = None
) -> prunus_runtime.Deployed:
    net = Builder((1, 4, 4), seed=1)
    x = net.linear(net.add("flatten", "x"), 2, density=1.0)
    if softmax is not None:
        net.add("softmax", x, log=softmax)
    return prunus_runtime.Deployed(replace(net.graph(), images=images), 1)


def test_pixels_become_inputs_by_hand() -> None:
    x = np.zeros((1, 1, 4, 4), np.uint8)
    x[0, 0, 1, 2] = 255
    wanted = np.full((1, 1, 4, 4), -2, np.float32)
    wanted[0, 0, 1, 2] = 2
    np.testing.assert_allclose(GREY.inputs(x, (1, 4, 4)), wanted)
    np.testing.assert_allclose(GREY.inputs(np.moveaxis(x, 1, -1), (1, 4, 4)), wanted)
    colour = Images((0.0, 0.0, 1.0), (1.0, 1.0, 0.5), 2)
    pixels = np.full((1, 2, 2, 3), 255, np.uint8)
    np.testing.assert_allclose(colour.inputs(pixels, (3, 2, 2))[0, :, 0, 0], [1, 1, 0])
    network = classifier()
    np.testing.assert_array_equal(network(x), network(wanted))
    assert network(torch.from_numpy(x)).dtype == torch.float32


def test_the_order_of_channels(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (10, 20, 30)).save(tmp_path / "x.png")
    rgb = Images((0.0,) * 3, (1.0,) * 3, 4)
    for order, values in (("RGB", [10, 20, 30]), ("BGR", [30, 20, 10])):
        pixels = replace(rgb, order=order).read(tmp_path / "x.png", (3, 4, 4))
        assert pixels.shape == (3, 4, 4) and pixels[:, 0, 0].tolist() == values


@pytest.mark.parametrize("softmax", [None, False, True])
def test_probabilities_sum_to_one_whatever_the_network_ends_with(softmax: bool | None) -> None:
    x = np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4)
    logits = classifier()(x).astype(np.float64)
    wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for names, row in zip(classifier(softmax=softmax).classify(x), wanted, strict=True):
        assert names == pytest.approx({"a": row[0], "b": row[1]}, abs=1e-5)
        assert next(iter(names)) == "ab"[int(row.argmax())]
    assert [len(names) for names in classifier(softmax=softmax).classify(x, top=1)] == [1, 1]


def test_a_file_with_and_without_images() -> None:
    network = classifier()
    assert decode(encode(network.graph)).images == GREY
    old = replace(network.graph, images=None)
    assert decode(encode(old)).images is None
    assert b"images" not in encode(old), "files of before have the same bytes"
    assert classifier(None)(np.zeros((1, 1, 4, 4), np.float32)).shape == (1, 2)
    with pytest.raises(InputError, match="uint8; make it float32"):
        classifier(None)(np.zeros((1, 1, 4, 4), np.uint8))
    with pytest.raises(InputError, match="deploy it again"):
        classifier(None).classify(np.zeros((1, 1, 4, 4), np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": "RGB"}, "RGB images do not fit an input of shape"),
        ({"order": ["grey"]}, "the order of channels is"),
        ({"mean": ()}, "not of 1 channels"),
        ({"std": (0.0,)}, "mean, std and highest"),
        ({"std": (float("nan"),)}, "mean, std and highest"),
        ({"highest": "255"}, "mean, std and highest"),
        ({"short_side": 10**6}, "short side"),
        ({"short_side": True}, "short side"),
        ({"classes": ("a",)}, "names of 1 classes"),
        ({"classes": ("a", "a")}, "same name"),
        ({"classes": ("a", "\x1b[31m")}, "the name of a class"),
    ],
)
def test_images_that_cannot_be(change: dict[str, Any], message: str) -> None:
    images = replace(GREY, **change)
    with pytest.raises(GraphError, match=message):
        classifier(images)
    if "nan" not in str(change):
        entry = json.loads(json.dumps(images.described()))
        with pytest.raises(GraphError, match=message):
            classifier(Images.parse(entry))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*GREY.described(), "more"]), ANYTHING, max_size=3))
def test_any_nonsense_for_images_is_refused_or_works(changes: dict[str, Any]) -> None:
    try:
        images = Images.parse({**json.loads(json.dumps(GREY.described())), **changes})
        images.check((1, 4, 4), (2,))
    except GraphError as error:
        assert 10 < len(str(error)) < 300 and str(error).isprintable()
    else:
        assert images.inputs(np.zeros((1, 1, 4, 4), np.uint8), (1, 4, 4)).dtype == np.float32
        assert str(images)


def test_what_is_no_image(tmp_path: Path) -> None:
    network, path = classifier(), tmp_path / "x\x1b.jpg"
    with pytest.raises(InputError, match=r"x\\x1b\.jpg does not exist"):
        network.classify([path])
    path.write_bytes(b"no image")
    with pytest.raises(InputError, match="cannot be read as JPEG or PNG"):
        network.classify([path])
    Image.new("L", (8, 8)).save(tmp_path / "x.bmp")
    with pytest.raises(InputError, match="cannot be read as JPEG or PNG"):
        network.classify([tmp_path / "x.bmp"])
    Image.new("1", (9000, 9000)).save(tmp_path / "large.png")
    with pytest.raises(InputError, match="9000x9000 pixels, too many"):
        network.classify([tmp_path / "large.png"])
    Image.new("1", (1, 2**25)).save(tmp_path / "long.png")
    with pytest.raises(InputError, match="too long and narrow"):
        network.classify([tmp_path / "long.png"])
    assert network.classify([]) == []


def test_the_server_takes_images(tmp_path: Path) -> None:
    Image.new("L", (8, 8), 200).save(tmp_path / "x.jpg")
    network = classifier()
    with serving(Server(network, port=0)) as server:
        connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
        for body, status in (((tmp_path / "x.jpg").read_bytes(), 200), (b"nothing", 400)):
            connection.request("POST", "/predict", body, {"Content-Type": "image/jpeg"})
            response = connection.getresponse()
            content = json.loads(response.read())
            assert response.status == status
            if status == 200:
                assert content == network.classify([tmp_path / "x.jpg"])[0]
        connection.close()
    assert server.info["images"]["classes"] == ("a", "b")


def test_images_that_do_not_fit_the_model_are_an_error_of_deploying() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    with pytest.raises(prunus.DeployError, match="names of 2 classes"):
        prunus.deploy(model, None, torch.zeros(1, 1, 4, 4), images=GREY)


def test_a_header_with_nonsense_for_images() -> None:
    graph = classifier().graph
    content = encode(replace(graph, images=None))
    assert decode(content).images is None
    for entry in ({}, [], {**GREY.described(), "more": 1}, {**GREY.described(), "mean": 5}):
        with pytest.raises(GraphError, match="`images`"):
            Images.parse(entry)
    with pytest.raises(RuntimeFileError):
        decode(content[:-5])

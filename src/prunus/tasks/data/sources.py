"""Where each data set comes from, where its files are looked for, and the error without them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prunus.tasks.data.errors import MissingDataError


@dataclass(frozen=True)
class Source:
    """The official place of a data set, and its folders below the data root.

    `files` maps the name of each download to its published MD5. If they are archives, `unpacked`
    names the files needed from them. Everything ends up in the first of `folders`.
    """

    title: str
    url: str
    files: dict[str, str]
    folders: tuple[str, ...]
    unpacked: tuple[str, ...] = ()
    elsewhere: tuple[Path, ...] = ()
    """Folders outside the data root, where operating-system packages put the files."""


SOURCES = {
    "cifar10": Source(
        title="CIFAR-10",
        url="https://www.cs.toronto.edu/~kriz/",
        files={"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
        folders=("cifar-10-batches-py",),
        unpacked=(*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
    ),
    "cifar100": Source(
        title="CIFAR-100",
        url="https://www.cs.toronto.edu/~kriz/",
        files={"cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"},
        folders=("cifar-100-python",),
        unpacked=("train", "test"),
    ),
    "mnist": Source(
        title="MNIST",
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        files={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        folders=("mnist", "MNIST/raw"),
    ),
    "fashion-mnist": Source(
        title="Fashion-MNIST",
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        files={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        folders=("fashion-mnist", "FashionMNIST/raw"),
        elsewhere=(Path("/usr/share/datasets/fashion-mnist"),),  # Debian's package
    ),
}


def find_folder(name: str, root: Path) -> Path:
    """The first folder that exists for a data set of `SOURCES`."""
    source = SOURCES[name]
    folders = [*(root / folder for folder in source.folders), *source.elsewhere]
    for folder in folders:
        if folder.is_dir():
            return folder
    raise missing(name, folders)


def missing(name: str, looked_at: Sequence[Path]) -> MissingDataError:
    """The error for missing files, with the command that gets them."""
    source = SOURCES[name]
    return MissingDataError(
        f"{source.title} was not found; looked at {', '.join(map(str, looked_at))}. "
        f"Run the same command with --download to get it "
        f"(from {source.url}{next(iter(source.files))})"
    )

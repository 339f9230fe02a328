"""Where each data set comes from, where its files are looked for, and the error without them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prunus.tasks.data.errors import MissingDataError


@dataclass(frozen=True)
class Source:
    """The official place of a data set, and its folders below the data root.

    `files` maps the name of each download to its SHA-256. If they are archives, `unpacked`
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
        files={
            "cifar-10-python.tar.gz": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
        },
        folders=("cifar-10-batches-py",),
        unpacked=(*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
    ),
    "cifar100": Source(
        title="CIFAR-100",
        url="https://www.cs.toronto.edu/~kriz/",
        files={
            "cifar-100-python.tar.gz": "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"
        },
        folders=("cifar-100-python",),
        unpacked=("train", "test"),
    ),
    "mnist": Source(
        title="MNIST",
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        files={
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        folders=("mnist", "MNIST/raw"),
    ),
    "fashion-mnist": Source(
        title="Fashion-MNIST",
        url="https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        files={
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
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

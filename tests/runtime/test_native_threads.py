"""The native core with threads: calls at once, forks, the end of the process."""

import sys
import threading

import numpy as np
import pytest

from prunus_runtime import Deployed, reference
from prunus_runtime.executor import TRIES, Executor, Helpers
from prunus_runtime.graph import Graph
from support.graphs import Builder, batch
from support.native_paths import ISAS, everything_split
from support.processes import run

pytestmark = pytest.mark.skipif(not ISAS, reason="the native core is not compiled")


POOL = {"kernel": [64, 64], "stride": [64, 64], "padding": [0] * 4, "dilation": [1, 1]}


def network_graph(seed: int = 0) -> Graph:
    net = Builder((3, 16, 16), seed)
    x = net.activation(net.conv("x", 24))
    x = net.activation(net.conv(x, 32, stride=(2, 2)))
    x = net.add("flatten", net.add("adaptive_avg_pool", x, size=[1, 1]))
    return net.graph(net.linear(x, 10))


def test_calls_from_many_threads_at_once() -> None:
    """Several networks, each called from several threads with batches of several sizes."""
    graphs = [network_graph(seed) for seed in range(3)]
    networks = [Deployed(graph, threads=2) for graph in graphs]
    inputs = [batch(graphs[0], n, seed=n) for n in (1, 3, 16, 33)]
    with everything_split():
        for network in networks:
            network(inputs[0])  # plans are made with the first call, and kept
    expected = [[reference.run(graph, x) for x in inputs] for graph in graphs]
    wrong: list[float] = []

    def work(number: int) -> None:
        for i in range(40):
            k, j = (number + i) % len(networks), (number * 7 + i) % len(inputs)
            error = np.abs(networks[k](inputs[j]) - expected[k][j]).max()
            if not error < 1e-4:
                wrong.append(float(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong


def test_large_activations_are_computed_image_by_image(monkeypatch) -> None:
    """Several images at a time would not fit the caches: the same results, without their arena."""
    graph = network_graph()
    x = batch(graph, 33)
    network = Executor(graph, threads=1)
    expected = network(x)
    monkeypatch.setattr("prunus_runtime.executor.MOST", 0)
    assert network.cut(len(x)) == (1, 33)
    np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("threads", "images", "expected"),
    [
        (1, 1, [(1, 1)]),
        (1, 3, [(4, 3)]),
        (1, 128, [(4, 128)]),
        (2, 1, [(1, 1)]),
        (2, 2, [(1, 2)]),
        (2, 5, [(4, 5)]),
        (2, 8, [(4, 8)]),
        (2, 11, [(4, 8), (2, 3)]),
        (3, 4, [(1, 3), (1, 1)]),
        (3, 13, [(4, 12), (1, 1)]),
        (8, 9, [(1, 8), (1, 1)]),
        (12, 16, [(1, 12), (1, 4)]),
    ],
)
def test_every_thread_gets_chunks_of_its_own(
    threads: int, images: int, expected: list[tuple[int, int]]
) -> None:
    """(lanes, images) of each cut of a batch; a vector of the portable path has four floats."""
    network, cuts = Executor(network_graph(), threads, isa="portable"), []
    while images:
        cuts.append(network.cut(images))
        images -= cuts[-1][1]
    assert cuts == expected


def test_a_chunk_of_many_images_is_planned_only_if_it_is_used(monkeypatch) -> None:
    """Of sixteen of these images, the activations would be beyond the runtime's limit."""
    net = Builder((1, 4096, 4096), 0)
    graph = net.graph(net.add("max_pool", net.activation("x"), **POOL))
    network = Executor(graph, 1)
    assert network.cut(1) == (1, 1)
    assert network.cut(64) == (1, 64)
    monkeypatch.setattr("prunus_runtime.executor.make_program", None)  # nothing was planned
    assert network.cut(16) == (1, 16)


@pytest.mark.parametrize("threads", [2, 5, 70])
def test_threads_share_one_image(threads: int) -> None:
    graph = network_graph()
    x = batch(graph, 1)
    with everything_split():
        network = Deployed(graph, threads)
        for _ in range(50):
            np.testing.assert_allclose(network(x), reference.run(graph, x), rtol=1e-4, atol=1e-5)


PROGRAM = """
import os, sys
sys.path[:0] = {path!r}
import numpy as np
from test_native_threads import network_graph
from support.graphs import batch
from prunus_runtime import Deployed
graph = network_graph()
network, x = Deployed(graph, threads=3), batch(graph, 17)
y = network(x)
{rest}
"""


@pytest.mark.parametrize("signal_of_life", ["fork", "exit", "thread"])
def test_forks_and_the_end_of_the_process(signal_of_life: str) -> None:
    rest = {
        "fork": """
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(network(x), y) else 3)
    assert os.waitpid(child, 0)[1] == 0
""",
        "exit": "print(y.sum())",
        # A thread that is in the middle of a call when the interpreter ends.
        "thread": """
import sys
import threading
def forever():
    while True: network(x)
threading.Thread(target=forever, daemon=True).start()
""",
    }[signal_of_life]
    run("-c", PROGRAM.format(path=sys.path, rest=rest + "\nprint('done', flush=True)"))


def test_helpers_are_chosen_where_they_are_faster(monkeypatch) -> None:
    """By the best of several calls; how much each has to do is taken into account."""
    now = 0.0
    monkeypatch.setattr("prunus_runtime.executor.perf_counter", lambda: now)

    def chosen(seconds: dict[int, float]) -> int | None:
        helpers, calls = Helpers(2), []

        def call(threads: int) -> None:
            nonlocal now
            calls.append(threads)
            now += seconds[threads] * size * (5 if len(calls) % 7 == 0 else 1)

        for size in [*range(1, 2 * TRIES), 3]:
            assert helpers.chosen is None
            helpers.run(call, size)
        helpers.run(call, 1)
        assert calls == [2] * TRIES + [1] * TRIES + [helpers.chosen]
        return helpers.chosen

    assert chosen({2: 0.6, 1: 1.0}) == 2
    assert chosen({2: 1.4, 1: 1.0}) == 1


def test_helpers_change_no_bit() -> None:
    graph = network_graph()
    x = batch(graph, 1)
    with everything_split():
        network = Executor(graph, threads=2)
        results = [network(x) for _ in range(2 * TRIES + 1)]
    assert all(np.array_equal(result, results[0]) for result in results)

"""`prunus demo` and `prunus inspect`, as a person types them."""

import json
from pathlib import Path

from prunus.report.file import read_report
from support.processes import meanwhile
from support.sweeping import Here

COMMAND = ("demo", "--scale", "smoke", "--out", "there")


def test_table_verdict_and_files(cli, monkeypatch):
    executor = Here()
    monkeypatch.setattr("prunus.sweeps.LocalExecutor", lambda *_, **__: executor)
    status, output, errors = cli(*COMMAND)
    assert status == 0, errors
    assert "[ 1/12] digits/digits_convnet dense seed 0: kept 100.00%, validation " in output
    header = output[output.index("method ") :].splitlines()[0]
    assert " ".join(header.split()) == (
        "method settings stage kept % of all weights % searched % re-trained % against dense "
        "epochs matching on validation"
    )
    control = "random mask  target_density 0.5 0.25"
    for text in (control, " the dense network (", "there/report.html"):
        assert text in output
    file = read_report(Path("there/demo.json"))
    found = {(one.row, one.stage): one for one in file.subnetworks if one.seed == 1}
    assert set(found) == {
        ("dense", "training"),
        *((row, f"round {n}") for row in ("CS", "IMP") for n in (1, 2)),
        ("random mask", "round 2"),
    }
    cs, imp, control = (found[row, "round 2"] for row in ("CS", "IMP", "random mask"))
    assert control.density == cs.density and control.layers == cs.layers
    assert abs(imp.density - cs.density) < 1e-3
    assert set(cs.measured) == set(imp.measured) == {"searched", "re-trained"}
    executor.calls.clear()
    assert cli(*COMMAND)[1].endswith(output[output.index("Subnetworks of ") :])
    assert not executor.calls, "nothing is repeated"
    printed = json.loads(cli(*COMMAND, "--json")[1])
    assert len(printed["subnetworks"]) == len(file.subnetworks)
    ticket = Path("there") / cs.folder / "tickets/round-2.safetensors"
    status, output, _ = cli("inspect", ticket)
    assert status == 0 and "digits/digits_convnet" in output and "density" in output


def test_interrupted_and_run_again(cli, ctrl_c):
    """By Ctrl-C, with a worker process: the same command resumes."""
    state = Path("there/sweep.json")

    def begun():
        return state.exists() and '"finished"' in state.read_text()

    with meanwhile(begun, ctrl_c):
        status, _, errors = cli(*COMMAND, "--workers", "1")
    assert status != 0 and "Traceback" not in errors
    # Not as the state says: a worker may finish a run while the sweep is being stopped.
    results = [json.loads(path.read_text()) for path in Path().glob("there/*/results.json")]
    done = [run for run in results if run["finished"]]
    assert 0 < len(done) < 12
    status, output, errors = cli(*COMMAND, "--workers", "1")
    assert status == 0, errors
    assert output.count("] digits/digits_convnet ") == 12 - len(done) and "  ETA 0:" in output


def test_a_bad_ticket_is_a_message_and_status_2(cli):
    Path("bad.safetensors").write_bytes(b"nonsense")
    status, _, errors = cli("inspect", "bad.safetensors")
    assert status == 2 and "bad.safetensors" in errors

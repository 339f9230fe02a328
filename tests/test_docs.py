"""Documentation: its code runs, its links lead somewhere, public names have docstrings."""

from __future__ import annotations

import inspect
import io
import re
import shlex
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import prunus
from prunus.cli import app
from prunus.cli.trust import trusted_in
from prunus.sweeps import Experiment, make_plan
from prunus.sweeps.experiment import experiment_names

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`\n]*)$")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HTML_LINK = re.compile(r"""<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=["']([^"']+)["']""")
HTML_ANCHOR = re.compile(r"""\b(?:id|name)=["']([^"']+)["']""")
COMMAND = ("$ ", "prunus ", "python ")
"""How a block begins that is typed rather than printed."""
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)


def blocks(page: Path) -> Iterator[tuple[int, str, str]]:
    """The number of the first line, the info string and the content of each fenced block."""
    opening, content, start = None, [], 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if opening is None:
            if fence:
                opening, content, start = fence, [], number + 1
        elif fence and fence["ticks"] == opening["ticks"] and not fence["info"].strip():
            yield start, opening["info"].strip(), "\n".join(content) + "\n"
            opening = None
        else:
            content.append(line.removeprefix(opening["indent"]))
    assert opening is None, f"{page}:{start - 1}: the block has no end"


def prose(page: Path) -> str:
    """The page without code, where brackets are not links and hashes are not headings."""
    text = page.read_text()
    return re.sub(r"^ *(`{3,})[^`\n]*\n.*?^ *\1 *$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of headings and HTML elements, as MkDocs and GitHub make them."""
    text = prose(page)
    found = set(HTML_ANCHOR.findall(text))
    for heading in HEADING.findall(text):
        explicit = re.search(r"\{\s*#([\w-]+)[^}]*\}$", heading)
        if explicit:
            found.add(explicit[1])
            continue
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
        words = re.sub(r"[^\w\s-]", "", ascii_only).strip().lower()
        found |= {re.sub(r"[-\s]+", "-", words), words.replace(" ", "-")}
    return found


def links(page: Path) -> list[str]:
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", prose(page))
    found = [inline or reference for inline, reference in LINK.findall(text)]
    return [*found, *HTML_LINK.findall(text)]


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in links(page):
        if re.match(r"[a-z][a-z+.-]*:|//", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            broken.append(f"{link}: there is no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            broken.append(f"{link}: the page has no such heading")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    """And prints what the page shows after it."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    printed = None
    for line, info, content in blocks(page):
        words = re.findall(r"[\w-]+", info)  # `python notest`, or MkDocs' `{.python .notest}`
        if words == ["text"] and printed is not None and not content.startswith(COMMAND):
            assert content in printed, f"{page}:{line}"
        printed = None
        if words == ["python"]:
            # Padded, so that a traceback names the line of the page.
            source = "\n" * (line - 1) + content
            exec(compile(source, str(page), "exec"), namespace)
            printed = capsys.readouterr().out


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


def test_broken_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Some `code` here\n\n[a](#some-code-here) [b](#nowhere) [c](gone.md) [d](https://x.org)\n"
        "`[e](code.md)` <img src='gone.png'>\n\n```text\n# No heading\n[f](block.md)\n```\n"
        "[g](#no-heading)\n[h]: other.md\n"
    )
    assert [link.split(":")[0] for link in broken_links(page)] == [
        "#nowhere",
        "gone.md",
        "#no-heading",
        "other.md",
        "gone.png",
    ]


class BeforeTheRunError(Exception):
    """Raised where a run would begin, with its folder."""


SHOWN = re.compile(r"^\$ prunus (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
COMMANDS = [
    pytest.param(command, output, id=f"{page.stem}: {command}")
    for page in (ROOT / "docs" / "running.md", ROOT / "docs" / "security.md")
    for _, info, content in blocks(page)
    if info == "text"
    for command, output in SHOWN.findall(content)
    # What others need: a ticket found by a search, a terminal, a long text.
    if not command.startswith(("inspect", "retrain runs", "sweep sent.yaml", "prune --task text"))
]


@pytest.mark.parametrize(("command", "output"), COMMANDS)
def test_commands_do_what_is_shown(command, output, cli, monkeypatch):
    """Messages are the same; runs have the folder that is shown, and so the same settings."""

    def execute(settings, _):
        raise BeforeTheRunError(str(settings.folder))

    monkeypatch.setattr("prunus.runs.execute", execute)
    if "sent.safetensors" in command:
        manifest = prunus.Manifest(task="their_tasks:task", method="cs")
        prunus.Ticket(prunus.Mask({}), {}, manifest).save("sent.safetensors")
    try:
        _, _, errors = cli(*shlex.split(command))
    except BeforeTheRunError as run:
        # A run that was stopped, or diverged, shows no folder, or one in its message.
        shown = re.findall(r"\bruns/[\w-]+", output)
        assert str(run) in shown or (not shown and "stopped by SIGINT" in output)
    else:
        assert output.splitlines() == errors.splitlines() != []


def test_the_question_of_a_terminal_is_as_shown(tmp_path, monkeypatch, capsys):
    page = ROOT / "docs" / "security.md"
    [shown] = [c for _, _, c in blocks(page) if c.startswith("$ prunus sweep sent.yaml")]
    monkeypatch.chdir(tmp_path)
    terminal = type("Terminal", (io.StringIO,), {"isatty": lambda _: True})
    monkeypatch.setattr("sys.stdin", terminal("n\n"))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    content = {"name": "a", "tasks": "their_tasks:task", "settings": {"data_root": "/srv/data"}}
    with pytest.raises(prunus.SettingError):
        trusted_in(Path("sent.yaml"), content)
    assert shown.splitlines()[1:] == capsys.readouterr().err.rstrip().splitlines()


def test_the_tests_of_the_security_page_are_there():
    text = (ROOT / "docs" / "security.md").read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", text))
    security = {f"tests/security/{path.name}" for path in ROOT.glob("tests/security/test_*.py")}
    assert security <= named and [name for name in named if not (ROOT / name).is_file()] == []


def test_output_is_made_by_a_command_or_checked():
    """Whatever is shown with its command is made by tools/outputs.py, or run by a test here."""
    made = re.compile(r"<!-- results: output-[\w-]+ -->\n.*?<!-- end -->", re.DOTALL)
    for page in PAGES:
        text = made.sub("", page.read_text())
        if page.name != "security.md":
            assert not re.search(r"^ *\$ prunus .*\n(?! *```| +)", text, re.MULTILINE), page


def test_experiments_in_the_pages_are_experiments():
    found = {}
    for name in ("sweeps", "report"):
        for _, info, content in blocks(ROOT / "docs" / f"{name}.md"):
            if info == "yaml" and content.startswith("name: "):
                experiment = Experiment.parse(yaml.safe_load(content))
                found[experiment.name] = len(make_plan(experiment, Path("runs")))
    assert found == {"curve": 8, "digits": 56}
    assert "56 runs" in (ROOT / "docs" / "report.md").read_text()


def test_all_experiments_of_ours_are_listed():
    text = (ROOT / "docs" / "sweeps.md").read_text()
    named = [n for n in experiment_names() if not n.startswith(("table", "figure"))]
    assert named and [name for name in named if f"`{name}`" not in text] == []


def test_the_next_steps_that_are_shown_can_be_typed():
    pages = (ROOT / "docs" / "running.md", ROOT / "docs" / "tickets.md")
    shown = [content for page in pages for _, info, content in blocks(page) if info == "text"]
    ends = [content for content in shown if "\nRun: " in content]
    steps = [step for content in shown for step in re.findall(r"^Next: prunus (.*)", content, re.M)]
    assert len(ends) >= 7 and all("\nNext: " in content for content in ends)
    for step in steps:
        app.parse_args(shlex.split(step), exit_on_error=False, print_error=False)


def test_the_inspected_ticket_is_as_shown(cli):
    """But for what another processor, or another version, may change: metrics, counts, hashes."""
    shown = [c for _, _, c in blocks(ROOT / "docs" / "tickets.md") if c.startswith("$ prunus ")]
    assert [content.split()[2] for content in shown] == ["search", "inspect"]
    for content in shown:
        command, _, expected = content.partition("\n")
        status, output, errors = cli(*shlex.split(command)[2:])
        assert status == 0, errors

    def stable(text):
        lines = [line.split() for line in text.splitlines()]
        exact = [words for words in lines if words[:1] in (["settings"], ["task"], ["rewind"])]
        return exact, [words[:1] for words in lines]

    assert stable(output) == stable(expected)


def test_every_public_name_has_a_docstring():
    for name in prunus.__all__:
        value = getattr(prunus, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            # `vars`, because an inherited docstring explains something else; and the one that a
            # dataclass generates says nothing.
            text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
            assert text and not text.startswith(f"{name}("), f"prunus.{name} has no docstring"

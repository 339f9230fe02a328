"""`prunus demo`: the lottery ticket hypothesis on embedded data, with a table and a page."""

from prunus.demo.experiment import Experiment, Result, Settings
from prunus.demo.output import demo_page, demo_table, verdict

__all__ = ["Experiment", "Result", "Settings", "demo_page", "demo_table", "verdict"]

"""From a trained sparse network to one that is really smaller and faster; each step by itself."""

from prunus.deployment.capture import capture
from prunus.deployment.compact import compact
from prunus.deployment.deployed import Deployed, deploy
from prunus.deployment.fold import fold
from prunus.deployment.module import to_module
from prunus.deployment.onnx import export_onnx
from prunus.deployment.patterns import check_pattern
from prunus.deployment.report import Report

__all__ = [
    "Deployed",
    "Report",
    "capture",
    "check_pattern",
    "compact",
    "deploy",
    "export_onnx",
    "fold",
    "to_module",
]

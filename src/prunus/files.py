"""Writing files so that a reader sees the old one or the new one, never half of one."""

from prunus_runtime.atomic import write_atomically

__all__ = ["write_atomically"]

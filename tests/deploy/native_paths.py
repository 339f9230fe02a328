"""The instruction sets that this machine has, for tests."""

from prunus_runtime import native

ISAS = [isa for isa in native.ISAS if native.available() and native.lanes(isa)]

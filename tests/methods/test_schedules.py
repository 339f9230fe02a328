import pytest

from prunus.methods.common.schedules import cubic


@pytest.mark.parametrize(
    ("progress", "expected"),
    [(-1.0, 1.0), (0.0, 1.0), (0.5, 0.2 + 0.8 / 8), (0.9, 0.2008), (1.0, 0.2), (7.0, 0.2)],
)
def test_cubic(progress: float, expected: float) -> None:
    assert cubic(1.0, 0.2, progress) == pytest.approx(expected)

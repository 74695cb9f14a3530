"""The text of a run's settings, which is passed between processes."""
from __future__ import annotations

import random

import pytest

from vmprof_allocation.settings.settings import Limit, Settings

LIMITS = None, Limit(per_second=1000), Limit(share=5000)


def values(settings: Settings) -> list[str]:
    return [repr(str(getattr(settings, name)) if name == "limit"
                 else getattr(settings, name)) for name in Settings.__slots__]


@pytest.mark.parametrize("number", range(20))
def test_text_contains_all_settings(number: int) -> None:
    rng = random.Random(number)
    flags = [rng.random() < 0.5 for _ in range(5)]
    settings = Settings(
        rng.randrange(1, 2**62), rng.randrange(2**64),
        rng.choice(("exponential", "fixed")), rng.choice((None, 0.001, 0.99)), flags[0],
        rng.choice(LIMITS), flags[1], flags[2], flags[3], rng.choice((0.0, 0.1, 1e7)),
        flags[4])
    text = settings.text()
    assert values(Settings.parse(text)) == values(settings)
    assert Settings.parse(text).text() == text
    assert not set("\t\n\0\x1f") & set(text)     # separators between such texts


def test_another_seed_is_another_run() -> None:
    settings = Settings(128, 1, limit=Limit(share=5000))
    assert settings.with_seed(2).text() == settings.text().replace("seed=1", "seed=2")
    assert settings.seed == 1


@pytest.mark.parametrize("text", ["", "interval", "interval=x", "unknown=1", "limit=y"])
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        Settings.parse(text)

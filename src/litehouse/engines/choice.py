"""`Choice`: which engine runs a model, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Figure:
    """What the race measured of one candidate.

    Attributes:
        engine: Its name.
        precision: What it computes in.
        is_plain: Whether it has the graph as the file has it, without the passes that make most graphs faster.
        milliseconds: One run, the median over the rounds.
        lead: How many times as fast as the first candidate it is.
        rounds: Count of rounds.
        parts: In how many parts it runs the batch.
        form: The form in which the engine has built it.
    """

    engine: str
    precision: str
    is_plain: bool
    milliseconds: float
    lead: float
    rounds: int
    parts: int = 1
    form: str = ""


class Choice(str):
    """The name of an engine, with why it was chosen.

    Attributes:
        precision: What it computes in.
        is_plain: Whether it has the graph as the file has it, without the passes that make most graphs faster.
        parts: In how many parts it runs the batch.
        form: The form in which the engine has built it; empty for the usual one.
        reason: Why, in a sentence.
        figures: What the race measured; empty where there was none.
        until: When another start chooses anew, in seconds since the epoch: something was in the way. None for never.
    """

    precision: str
    is_plain: bool
    parts: int
    form: str
    reason: str
    figures: tuple[Figure, ...]
    until: float | None

    def __new__(
        cls,
        engine: str,
        precision: str,
        reason: str,
        figures: tuple[Figure, ...] = (),
        *,
        is_plain: bool = False,
        parts: int = 1,
        form: str = "",
        until: float | None = None,
    ) -> Self:
        """Make the choice of an engine."""
        self = super().__new__(cls, engine)
        self.precision, self.is_plain, self.parts = precision, is_plain, parts
        self.form, self.reason, self.figures, self.until = form, reason, figures, until
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is copied and pickled."""
        return type(self).of, (self.facts(),)

    def facts(self) -> dict[str, Any]:
        """The choice as plain data."""
        return {
            "engine": str(self),
            "precision": self.precision,
            "is_plain": self.is_plain,
            "parts": self.parts,
            "form": self.form,
            "reason": self.reason,
            "figures": [asdict(figure) for figure in self.figures],
            "until": self.until,
        }

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Self:
        """The choice of which `facts` gave this data."""
        figures = tuple(Figure(**figure) for figure in facts["figures"])
        how = {name: facts[name] for name in ("is_plain", "parts", "form", "until")}
        return cls(facts["engine"], facts["precision"], facts["reason"], figures, **how)

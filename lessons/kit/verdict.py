"""The decision on a claim, in words. It imports nothing else of the lessons, for the web pages."""

from dataclasses import dataclass

HOLDS, NOISE, FAILS, NOT_MEASURED = "holds", "within noise", "does not hold here", "not measured"


@dataclass(frozen=True)
class Verdict:
    """The decision on one claim.

    ratio: larger over smaller median, or first over second where the claim has a factor (`times`);
    None if not measured, or not a ratio.
    """

    text: str
    verdict: str
    ratio: float | None = None
    reason: str = ""
    kind: str = ""
    times: bool = False

    def __str__(self) -> str:
        more = {
            FAILS: f" What decides: {self.reason}.",
            NOT_MEASURED: " The options, the ranks or the machine of this run leave it out.",
        }
        return f"{self.how_far()}: {self.text}{more.get(self.verdict, '')}"

    def how_far(self) -> str:
        """holds (by 1.8 x), or holds (1.49 times)"""
        if self.ratio is None or not 1e-3 < self.ratio < 1e3:  # such a factor says nothing
            return self.verdict
        digits = "#.3g" if self.ratio < 100 else ",.0f"
        number = f"{self.ratio:{digits}}"
        by = f"{number} times" if self.times else f"by {number} x"
        return f"{self.verdict} ({by})"

"""The decision on a claim, in words. It imports nothing else of the lessons, for the web pages."""

from dataclasses import dataclass

HOLDS, NOISE, FAILS, NOT_MEASURED = "holds", "within noise", "does not hold here", "not measured"
NOT_JUDGED = "not judged"  # a busy machine, or --quick


@dataclass(frozen=True)
class Verdict:
    """The decision on one claim.

    ratio: larger over smaller median, or first over second where the claim has a factor (`times`);
    None if not measured, or not a ratio. wanted: of `times`, "above 1.3". reason: what decides if
    it does not hold; what is undecided within noise.
    """

    text: str
    verdict: str
    ratio: float | None = None
    reason: str = ""
    kind: str = ""
    times: bool = False
    wanted: str = ""

    def __str__(self) -> str:
        return f"{self.how_far()}: {self.sentence()}"

    def sentence(self) -> str:
        """The claim, and what decides it where it does not hold."""
        more = {
            FAILS: f" What decides: {self.reason}.",
            NOISE: f" {self.reason}." * bool(self.reason),
            NOT_MEASURED: " The options, the ranks or the machine of this run leave it out.",
        }
        return self.text + more.get(self.verdict, "")

    def how_far(self) -> str:
        """holds (by 1.8 x), or holds (1.49 times, wanted above 1.3)"""
        if self.ratio is None or not 1e-3 < self.ratio < 1e3:  # such a factor says nothing
            return self.verdict
        digits = "#.3g" if self.ratio < 100 else ",.0f"
        number = f"{self.ratio:{digits}}"
        wanted = f", wanted {self.wanted}" * bool(self.wanted)
        by = f"{number} times{wanted}" if self.times else f"by {number} x"
        return f"{self.verdict} ({by})"

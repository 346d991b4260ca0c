"""A student's guess (--predict): its form, and how far off it was.

    form = Guess("3 times and 2 times")             two numbers; an example, as the error shows it
    form = Guess("overlap", choices=("ring", "overlap"))    one of these words
    form.refuse("80 %")                             what is wrong with this guess; "" if nothing is
    form.compared("4 and 2", "1.45 times with ..., 1.00 times ...")     "2.8 x and 2 x off"

The measured numbers are read in the lesson's answer: the first ones that have the example's unit.
"""

import math
import re
from dataclasses import dataclass

from kit.words import factor_off, off_by

NUMBER = re.compile(
    r"(?<![\w.])(-?\d[\d,]*\.?\d*(?:e-?\d+)?|inf)\s*"
    r"(%|percent|x\b|times|[kKMG]?i?B\b|bytes|[mun\xb5]?s\b|calls?|ranks?)?(?!\w)"
)
SAME = {"percent": "%", "x": "times", "calls": "call", "rank": "ranks", "bytes": "B"}
SCALES = {
    "B": {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 1e3, "MB": 1e6, "GB": 1e9},
    "s": {"s": 1, "ms": 1e-3, "us": 1e-6, "\xb5s": 1e-6, "ns": 1e-9},
}
SCALED = {unit: (base, x) for base, units in SCALES.items() for unit, x in units.items()}
FAR = 10  # times: a guess that is off by so much is off on a busy machine too
NAMED = {"eager": "0 B", "one call": "inf B", "never": "inf ranks"}


def numbers(text: str) -> list[tuple[float, str]]:
    """[(3.0, "times"), ...]; "16 MiB" in B, "2 ms" in s, the unit "" where there is none."""
    for name, theta in NAMED.items():
        text = re.sub(rf"^{name}", theta, text.strip())
    found = [
        (digits.replace(",", ""), SAME.get(unit, unit)) for digits, unit in NUMBER.findall(text)
    ]
    scaled = [(digits, *SCALED.get(unit, (unit, 1))) for digits, unit in found]
    return [(float(digits) * scale, unit) for digits, unit, scale in scaled]


def plain(word: str) -> str:
    return re.sub(r"[\W_]", "", word.lower())


@dataclass(frozen=True)
class Guess:
    """example: a guess of the right form; choices: the words that it may name, if it is a word.

    timed: is it a guess at times, with which a busy machine's are not compared?
    """

    example: str
    choices: tuple[str, ...] = ()
    timed: bool = True

    def named(self, text: str) -> str | None:
        """The choice that this text names first; None without one."""
        places = {choice: plain(text).find(plain(choice)) for choice in self.choices}
        found = [choice for choice, place in places.items() if place >= 0]
        return min(found, key=lambda choice: (places[choice], -len(choice)), default=None)

    def refuse(self, guess: str) -> str:
        """Why this guess does not answer the question; "" if it does."""
        if self.choices:
            wanted, fits = f"one of {', '.join(self.choices)}", self.named(guess) is not None
        else:
            asked, given = numbers(self.example), numbers(guess)
            wanted = "1 number" if len(asked) == 1 else f"{len(asked)} numbers"
            if scales := SCALES.get(asked[0][1]):
                wanted += f" with its unit ({', '.join(scales)})"
            fits = len(given) == len(asked) and all(
                unit == own or (unit == "" and own not in SCALES)
                for (_, unit), (_, own) in zip(given, asked)
            )
        return "" if fits else f"got {guess!r}; wanted {wanted}; next: --predict '{self.example}'"

    def compared(self, guess: str, answer: str, least: float = 1.0) -> str:
        """How far the guess is off what the answer says was measured; "" if it says no number.

        least: of a busy machine only factors from here on, which its times do not explain
        """
        if self.choices:
            if least > 1:
                return ""
            right = self.named(guess) == self.named(answer)
            return "" if self.named(answer) is None else "right" if right else "another one"
        asked = numbers(self.example)
        measured = [value for value, unit in numbers(answer) if unit == asked[0][1]][: len(asked)]
        if len(measured) < len(asked):
            return ""
        unit = asked[0][1]
        given = [value for value, own in numbers(guess) if own in ("", unit)]
        pairs = [pair for pair in zip(given, measured) if least == 1 or far(*pair, unit, least)]
        return " and ".join(off(*pair, unit) for pair in pairs) + " off" if pairs else ""

    def sentence(self, guess: str, answer: str, busy: bool) -> str:
        """How far the guess is off; on a busy machine only where its times do not explain it."""
        if not (busy and self.timed):
            off = self.compared(guess, answer)
            return f" Your guess: {off}." if off else ""
        off = self.compared(guess, answer, FAR)
        even = f"; even so: {off}" if off else ""
        return f" Your guess is not compared with times that are not to be believed{even}."


def far(guess: float, measured: float, unit: str, least: float) -> bool:
    return unit != "%" and factor_off(guess, measured) >= least


def off(guess: float, measured: float, unit: str) -> str:
    if unit == "%":
        return f"{abs(guess - measured):.3g} points"
    if guess != measured and math.inf in (guess, measured):
        return "infinitely"
    return off_by(guess, measured) if guess != measured else "0%"

"""The page of a lesson, from its script, drawing, figures, exercises and teacher's page."""

import json
import re
import runpy
from html import escape, unescape
from pathlib import Path

from refgf.site import docstring
from refgf.site.alts import ALTS
from refgf.site.frame import contents, page
from refgf.site.markdown import Text, folded, plain, python, table
from refgf.site.numbers import tables
from refgf.site.repository import Repository, lesson_numbers, relative

TOUR = "tour/index.html"
PLAYER = ("Watch ring and hierarchical allreduce, message by message", "player/index.html")
EXPLORER = ("Move theta, the link and the ranks", "explorer/index.html")
MICROSCOPE = ("See how sums of p ranks are rounded", "microscope/index.html")
MOVES = {"01": PLAYER, "03": EXPLORER, "04": EXPLORER, "05": MICROSCOPE}
MOVES |= {"09": EXPLORER, "10": PLAYER}
GUESS = """<form class="guess" data-lesson="{number}">
<label for="guess">Your guess, before you open what was measured:</label>
<input id="guess" name="guess" autocomplete="off"> <span class="kept" role="status"></span>
</form>
"""


class Lesson:
    """One lesson. number: "03"."""

    def __init__(self, files: Repository, number: str) -> None:
        self.files, self.number = files, number
        self.address = f"lessons/{number}/index.html"
        self.path = self._path("lessons")
        self.code = files.text(self.path)
        self.stem = Path(self.path).stem
        self.doc = docstring.lesson_text(self.code)
        self.text = Text(files, self.address, self.path)
        self.result = json.loads(files.text(f"figures/{self.stem}.json"))

    def _path(self, folder: str) -> str:
        (file,) = (self.files.root / folder).glob(f"{self.number}_*.py")
        return str(file.relative_to(self.files.root))

    def html(self) -> str:
        """The whole page."""
        title = f"Lesson {self.number}: {self.doc.title}"
        parts = [
            *(self.question(), self.idea(), self.prediction(), self.figures(), self.verdicts()),
            *(self.exercises(), self.functions(), self.teacher(), self.neighbours()),
        ]
        head = f"<h1>{escape(title)}</h1>\n{contents(self.text.headings)}"
        script = f'<script src="{self.text.link("static/guess.js")}" defer></script>\n'
        about = " ".join(self.doc.sections["QUESTION"].split())
        return page(self.address, title, head + "\n".join(parts), about, script)

    def question(self) -> str:
        source = self.text.link(self.files.source(self.path))
        return (
            f'<div class="question">{self.text.docstring(self.doc.sections["QUESTION"])}</div>'
            f"<p>Run it, in the environment that <code>make setup</code> made:</p>"
            f'{plain(self.doc.commands)}<p><a href="{source}">The whole lesson</a></p>'
        )

    def idea(self) -> str:
        found = [self.text.heading("Idea"), self.drawing()]
        found.append(self.text.docstring(docstring.spaced(self.doc.sections["IDEA"])))
        for more in {"MESSAGES", "APPENDIX"} & set(self.doc.sections):
            found.append(self.text.docstring(docstring.spaced(self.doc.sections[more])))
        about, code = docstring.between(self.code, "# ---- the idea", "# ----")
        found += [f"<p>The idea as code{': ' * bool(about)}{escape(about)}</p>", python(code)]
        return "\n".join(found)

    def picture(self) -> str:
        """The drawing, with its description for those who cannot see it."""
        _, words, width, height = self.described()
        address = self.files.address(f"lessons/drawings/{self.number}.svg")
        return (
            f'<img src="{self.text.link(address)}" width="{width}" height="{height}" '
            f'alt="{escape(words, quote=True)}">'
        )

    def described(self) -> tuple[str, str, str, str]:
        """Of the drawing: title, description, width, height."""
        svg = self.files.text(f"lessons/drawings/{self.number}.svg")
        title, words = (
            " ".join(unescape(re.search(rf"<{tag}[^>]*>(.*?)</{tag}>", svg, re.S)[1]).split())
            for tag in ("title", "desc")
        )
        return title, words, *re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups()

    def drawing(self) -> str:
        """The drawing with its title and its description."""
        title, words, *_ = self.described()
        return (
            f"<figure>{self.picture()}<figcaption>{escape(title)}</figcaption></figure>"
            + folded("The drawing in words", f"<p>{escape(words)}</p>")
            + self.moves()
        )

    def moves(self) -> str:
        """The way to the interactive page of this idea, if there is one."""
        if self.number not in MOVES:
            return ""
        words, address = MOVES[self.number]
        return f'<p><a href="{self.text.link(address)}">{words}</a></p>'

    def prediction(self) -> str:
        """The formula, what to guess, and what was measured, which the reader opens."""
        found = [self.text.heading("Prediction")]
        found.append(self.text.docstring(docstring.spaced(self.doc.sections["PREDICTION"])))
        found.append(f'<div class="box">{self.text.docstring(self.doc.write_down)}')
        found.append(GUESS.format(number=self.number))
        found.append(folded("What was measured", self.measured(), "reveal"))
        return "\n".join([*found, "</div>", self.text.docstring(self.doc.after)])

    def measured(self) -> str:
        """The lines that the run for figures/ printed, as the teacher's page has them."""
        page_text = self.files.text(f"lessons/teaching/{self.number}.md")
        found = re.search(r"<!-- expected:.*?-->\n(.*?)<!-- end of expected -->", page_text, re.S)
        return self.text.markdown(found[1])

    def figures(self) -> str:
        """The pictures, their words and their numbers, folded: they give the prediction away."""
        found = []
        paths = sorted((self.files.root / "figures").glob(f"{self.stem}*.png"))
        for file in paths:
            path = f"figures/{file.name}"
            alt = self.result["alt"] if file.stem == self.stem else ALTS[file.stem]
            width, height = png_size(file.read_bytes())
            source = self.text.link(self.files.address(path))
            found.append(
                f'<figure><a href="{source}"><img src="{source}" width="{width}" height="{height}" '
                f'loading="lazy" alt="{escape(alt, quote=True)}"></a></figure>'
            )
        data = self.text.link(self.files.address(f"figures/{self.stem}.json"))
        about = f"{escape(self.result['place'])}, {self.result['ranks']} ranks"
        words = [self.result["alt"]]
        words += [text for stem, text in ALTS.items() if stem.startswith(f"{self.stem}_")]
        found.append(f"<p>Figures in words: {escape(' '.join(words))}</p>")
        where = f'<p>Measured on {about}. All of it: <a href="{data}">{self.stem}.json</a>.</p>'
        found.append(folded("The numbers of these figures", where + tables(self.result)))
        return self.text.heading("Figures") + folded("The figures", "\n".join(found), "reveal")

    def verdicts(self) -> str:
        """Each claim with the verdict on the committed numbers, in lessons/kit's words, folded."""
        path = self.files.root / "lessons" / "kit" / "verdict.py"
        verdict = runpy.run_path(str(path))["Verdict"]
        rows = []
        for fields in self.result["verdicts"]:
            decided = verdict(**fields)
            rows.append([escape(decided.sentence()), f"<em>{escape(decided.how_far())}</em>"])
        about = "<p>Each sentence is decided by the numbers that were just measured.</p>"
        found = table(["claim", "verdict here"], rows, "claims and verdicts")
        return self.text.heading("Verdicts") + folded("The verdicts", about + found, "reveal")

    def exercises(self) -> str:
        code = self.files.text(f"lessons/solutions/{self.stem}.py")
        answers = docstring.solutions(code)
        found = [self.text.heading("Now change something"), "<ol>"]
        for number, exercise in enumerate(self.doc.exercises, start=1):
            answer, check = answers[number]
            solution, asked = "", self.text.docstring(docstring.spaced(exercise))
            if not self.files.private:
                checked = folded("The code that checks it", python(check))
                body = self.text.docstring(docstring.spaced(answer)) + checked
                solution = folded(f"Solution of {number}", body)
            found.append(f"<li>{asked}{solution}</li>")
        found += ["</ol>", self.text.heading("A colleague says"), "<p>What is wrong?</p>"]
        said = self.doc.sections["A COLLEAGUE SAYS"].partition("\n")[2]
        return "\n".join([*found, self.text.docstring(said)])

    def functions(self) -> str:
        path = f"lessons/student/{self.number}.py"
        source = self.text.link(self.files.address(path))
        found = [self.text.heading("Something to write")]
        found.append(f'<p>Fill in <a href="{source}">{path}</a>, and have it marked:</p>')
        found.append(plain(f"python -m refgf.oracle grade {self.number} {path}"))
        found.append("<p>Then let the lesson measure it, next to the project's:</p>")
        found.append(plain(f"mpiexec -n 4 python {self.path} --mine {path}"))
        for function in docstring.functions(self.files.text(path)):
            found += [self.text.heading(function.title, 3), python(function.code)]
            if function.hint:
                found.append(folded("Hint", self.text.docstring(function.hint)))
        return "\n".join(found)

    def teacher(self) -> str:
        """The box for the teacher: objectives, and the way to the page."""
        if self.files.private:
            return ""
        path = f"lessons/teaching/{self.number}.md"
        found = re.search(r"^## Objectives\n(.*?)^## ", self.files.text(path), re.S | re.M)
        link = self.text.link(self.files.address(path))
        body = self.text.docstring(found[1])
        more = f'<p><a href="{link}">Minutes, guesses that come, misconceptions, marking</a></p>'
        return folded("For the teacher", body + more, "teacher")

    def neighbours(self) -> str:
        numbers = lesson_numbers(self.files.root)
        at, links = numbers.index(self.number), []
        for word, other in (("Before", at - 1), ("Next", at + 1)):
            if 0 <= other < len(numbers):
                address = relative(f"lessons/{numbers[other]}/index.html", self.address)
                links.append(f'<a href="{address}">{word}: lesson {numbers[other]}</a>')
        return f'<nav class="neighbours" aria-label="Lessons">{" ".join(links)}</nav>'


def tour_page(files: Repository) -> str:
    """For a visitor without a question: the question and the drawing of each lesson."""
    about = (
        "The questions of all lessons, each with its drawing. Open the one that you would guess."
    )
    cards = []
    for number in lesson_numbers(files.root):
        lesson = Lesson(files, number)
        lesson.text.page = TOUR
        href, picture = lesson.text.link(lesson.address), lesson.picture()
        said = lesson.text.docstring(lesson.doc.sections["QUESTION"])
        title = f"<h2>{number} {escape(lesson.doc.title)}</h2>"
        cards.append(f'<li><a href="{href}">{title}</a>{said}{picture}</li>')
    body = f'<h1>Look around</h1>\n<p>{about}</p>\n<ul class="doors">{"".join(cards)}</ul>'
    return page(TOUR, "Look around", body, about)


def png_size(content: bytes) -> tuple[int, int]:
    """(width, height) in pixels, from the first chunk of a PNG file."""
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")

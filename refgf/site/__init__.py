"""A static site from the project's own files: `make site`, or `python -m refgf.site build`.

    build.py      which pages there are; writes them, their pictures and their data
    repository.py where a file of the project is found on the site
    markdown.py   Markdown and docstrings as HTML: anchors, links between pages, tables that scroll
    frame.py      what every page has around its text; the menu of all pages
    search.py     the sections of all pages as data for MiniSearch
    lesson.py     a lesson: question, drawing, idea, prediction, figures, verdicts, exercises;
                  the tour of all lessons
    alts.py       what the further figures of a lesson show, in words
    numbers.py    the numbers of a figure as tables
    spec.py       SPEC.md with an address for each statement
    api.py        the API reference of the core, from signatures and docstrings
    baselines.py  what `make peers` compares, and the ratios that it measured
    cite.py       CITATION.cff as a page
    player.py     the schedule player: our schedules as data
    played.py     a schedule as the page plays it: messages by step, values in memory
    dropped.py    a reader's schedule file, judged and played; runs in the page
    explorer.py   the theta and overlap explorer: its settings, and answers that are exported
    answers.py    what it shows for one setting; runs in the page
    pyodide.py    Python in a page: Pyodide's core from npm, and the modules that a page runs
    microscope.py the rounding errors of ring and direct as data
    serve.py      shows the site on this machine
    static/       style sheet and scripts, without a framework

Pages are generated, so nothing is typed twice. Building needs no network, and a page that is read
requests nothing from another host. It works from `file://` and below any path of a server.

MyST (`mystmd` 1.8.3, Jupyter Book 2) was tried and cannot be used. Its theme is in no package of
npm or PyPI: the first build requests it from api.mystmd.org, and without a network it ends there
(its issues 207 and 210, open). Its pages work below one path, which is fixed when they are built,
and not from a disk (issue 188). markdown-it-py parses Markdown and Pygments highlights Python; both
are plain Python packages.

Sphinx 9.0 with myst-parser 5.2 and furo was tried twice on these texts and the core's docstrings.
It builds offline and brings a search. It is left alone. Only api.py, most of frame.py and a part of
build.py would go, about 220 lines: lessons, SPEC and baselines use the rest. An estimated 225 lines
of settings and extensions would come (names of files and lessons as links, sources with line
numbers, pages that Python makes). 87 pages took 13 s of processor time; all 290 pages take 7 s
here. axe found serious problems on each of the four texts that it was shown: code and tables that
the keyboard cannot scroll. Our docstrings are no reStructuredText: drawings and lists of names run
together, and `Wire` is printed as the union behind it.

Pagefind 1.5 brings a search in no lines, but fetches its index, which a page from a disk may not.
MiniSearch is one script, and the index is another.
"""

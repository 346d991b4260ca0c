"""A plan's messages as a table and as a drawing (SVG): ranks side by side, time downwards."""

from xml.sax.saxutils import escape

from refgf.oracle.schedules.times import Transfer

SHOWN = 400  # messages in a table or a drawing
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
WIDTH, HEIGHT, MARGIN = 90, 640, 50  # pixels


def table(transfers: list[Transfer], unit: str = "chunks") -> list[str]:
    """One line for each message, in the order of their start."""
    lines = [f"  start us    end us  from   to{unit:>12}  what"]
    for t in transfers[:SHOWN]:
        times = f"{t.start_s * 1e6:10.1f}{t.end_s * 1e6:10.1f}"
        lines.append(f"{times}{t.source:6d}{t.dest:5d}{t.chunks:12d}  {t.what}")
    if len(transfers) > SHOWN:
        lines.append(f"  and {len(transfers) - SHOWN} more messages")
    return lines


def svg(title: str, ranks: int, transfers: list[Transfer]) -> str:
    """An arrow for each message, from its start at the sender to its arrival."""
    shown = transfers[:SHOWN]
    last = max((t.end_s for t in shown), default=0.0) or 1.0
    width = 2 * MARGIN + WIDTH * (ranks - 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT + 2 * MARGIN}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="end" markerWidth="7" markerHeight="6" refX="7" refY="3" orient="auto">'
        '<path d="M0,0 L7,3 L0,6 z"/></marker></defs>',
        f'<rect width="{width}" height="{HEIGHT + 2 * MARGIN}" fill="white"/>',
    ]
    for rank in range(ranks):
        x = MARGIN + WIDTH * rank
        parts.append(f'<text x="{x}" y="{MARGIN - 15}" text-anchor="middle">rank {rank}</text>')
        ends = f'x1="{x}" x2="{x}" y1="{MARGIN}" y2="{MARGIN + HEIGHT}"'
        parts.append(f'<line {ends} stroke="#999"/>')
    for t in shown:
        (x1, y1), (x2, y2) = (
            (MARGIN + WIDTH * rank, round(MARGIN + HEIGHT * time / last, 1))
            for rank, time in ((t.source, t.start_s), (t.dest, t.end_s))
        )
        color = COLORS[t.source % len(COLORS)]
        about = f"{t.source} to {t.dest}: {t.what}, {t.start_s * 1e6:.1f}-{t.end_s * 1e6:.1f} us"
        parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}" '
            f'marker-end="url(#end)"><title>{escape(about)}</title></line>'
        )
    bottom = f"{last * 1e6:.1f} us" + ", not all messages" * (len(transfers) > SHOWN)
    parts.append(f'<text x="{MARGIN}" y="{MARGIN + HEIGHT + 25}">{bottom}</text>')
    return "\n".join([*parts, "</svg>", ""])

"""Plots as SVG: alloc + free against living allocations, bars beside their goals, growth curves."""
import dataclasses
import math
from xml.sax.saxutils import escape

from bench.report import time_text

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 80, 150, 50, 60
COLOURS = ("#4c4c4c", "#0b7a75", "#c8553d", "#5b5fc7", "#b8860b", "#7a306c", "#2e8b3d", "#d1408f", "#1f77b4", "#8c6d46")


def series_of(rows, loop):
    """{configuration: [(live, summary)]}, by live."""
    lines = {}
    for row in sorted((r for r in rows if r["loop"] == loop and not r["idle_processes"]), key=lambda r: r["live"]):
        for name, result in row["results"].items():
            if "error" not in result:
                lines.setdefault(name, []).append((row["live"], result))
    return lines


class Axes:
    def __init__(self, lines):
        self.lives = sorted({live for points in lines.values() for live, _ in points})
        values = [v for points in lines.values() for _, r in points for v in (r["q1"], r["q3"])]
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + 1)

    def x(self, live):
        step = (WIDTH - LEFT - RIGHT) / max(len(self.lives) - 1, 1)
        return LEFT + self.lives.index(live) * step

    def y(self, ns):
        share = (math.log10(ns) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def text(x, y, content, anchor="middle", size=13, colour="#222"):
    """With a white edge, so that lines behind it don't cross it out."""
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}" stroke="white" '
            f'stroke-width="3" paint-order="stroke">{escape(content)}</text>')


LABEL_PX = 16


def apart(wanted):
    """The heights at which labels don't lie over each other, near those that they should have."""
    found, last = dict.fromkeys(wanted), -math.inf
    for name, y in sorted(wanted.items(), key=lambda item: item[1]):
        found[name] = last = max(y, last + LABEL_PX)
    return found


def grid(axes):
    right = WIDTH - RIGHT
    for decade in range(axes.low, axes.high + 1):
        y = axes.y(10 ** decade)
        yield f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield text(LEFT - 8, y + 4, time_text(10 ** decade), "end")
    for live in axes.lives:
        yield text(axes.x(live), HEIGHT - BOTTOM + 20, f"{live:,}")


def line(axes, name, points, colour, label_y):
    path = " ".join(f"{axes.x(live):.1f},{axes.y(r['median']):.1f}" for live, r in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for live, r in points:
        x = axes.x(live)
        yield (f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{axes.y(r["q1"]):.1f}" y2="{axes.y(r["q3"]):.1f}" '
               f'stroke="{colour}" stroke-width="6" stroke-opacity="0.35"/>')
        yield f'<circle cx="{x:.1f}" cy="{axes.y(r["median"]):.1f}" r="3.5" fill="{colour}"/>'
    yield text(axes.x(points[-1][0]) + 12, label_y, f"{name}: {time_text(points[-1][1]['median'])}", "start", colour=colour)


def svg(rows, loop="alloc_free"):
    lines = series_of(rows, loop)
    axes = Axes(lines)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             text(WIDTH / 2, 26, "cuMemAlloc + cuMemFree over a driver that returns at once", size=16),
             text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "other living allocations of the process"), *grid(axes)]
    labels = apart({name: axes.y(points[-1][1]["median"]) + 4 for name, points in lines.items()})
    for i, (name, points) in enumerate(lines.items()):
        parts += line(axes, name, points, COLOURS[i % len(COLOURS)], labels[name])
    return "\n".join(parts + ["</svg>"]) + "\n"


def frame(height, title):
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>', text(WIDTH / 2, 26, title, size=16)]


@dataclasses.dataclass(frozen=True)
class Bar:
    """A value as a part of its goal, and in words; `proven`: whether that says anything. `beside`: others' parts, by name."""
    name: str
    part: float
    words: str
    proven: bool = True
    beside: dict = dataclasses.field(default_factory=dict)

    def colour(self):
        return UNPROVEN if not self.proven else COLOURS[1] if self.part <= 1 else COLOURS[2]


UNPROVEN = "#a8a8a8"
STEP = 20


def bars(title, rows, most=2.0, line="goal"):
    """A Bar each, with a line where the goal is, and circles for what stands beside."""
    top, left = 46, 24 + max((6.8 * len(bar.name) for bar in rows), default=100)
    scale = (WIDTH - left - 100) / most
    others = list(dict.fromkeys(name for bar in rows for name in bar.beside))
    keys = [(UNPROVEN, "unproven here")] * any(not bar.proven for bar in rows)
    keys += [(COLOURS[3 + i % 7], f"{name}{' (at the edge: more)' if not i else ''}") for i, name in enumerate(others)]
    bottom = top + STEP * len(rows) + 4
    goal = left + scale
    parts = frame(bottom + 24 + STEP * len(keys), title) + [
        f'<line x1="{goal:.1f}" x2="{goal:.1f}" y1="{top}" y2="{bottom}" stroke="#222"/>', text(goal, bottom + 16, line, size=12)]
    for i, bar in enumerate(rows):
        y = top + STEP * i
        wide = scale * max(0.0, min(bar.part, most))
        parts += [text(left - 8, y + 14, bar.name, "end", 12),
                  f'<rect x="{left:.1f}" y="{y + 3}" width="{wide:.1f}" height="{STEP - 6}" fill="{bar.colour()}"/>',
                  text(left + scale * most + 10, y + 14, bar.words + (" >" if bar.part > most else ""), "start", 11)]
        parts += [f'<circle cx="{left + scale * max(0.0, min(part, most)):.1f}" cy="{y + STEP / 2}" r="4" fill="white" '
                  f'stroke-width="2" stroke="{COLOURS[3 + others.index(name) % 7]}"/>' for name, part in bar.beside.items()]
    for i, (colour, words) in enumerate(keys):
        y = bottom + 12 + STEP * i
        parts += [f'<circle cx="24" cy="{y}" r="4" fill="{colour if colour == UNPROVEN else "white"}" stroke-width="2" '
                  f'stroke="{colour}"/>', text(36, y + 4, words, "start", 11)]
    return "\n".join(parts + ["</svg>"]) + "\n"


def parts_of_one(title, rows):
    """Rows of (name, part, part as text)."""
    return bars(title, [Bar(*row) for row in rows], most=1.0, line="")


def log_range(values):
    low = math.floor(math.log10(min(values)))
    return low, max(math.ceil(math.log10(max(values))), low + 1)


GUIDES = (("n", lambda n: n), ("n log n", lambda n: n * math.log2(n + 1)))


def growth(title, curves, missed=()):
    """{name: [(size, ns)]}, both logarithmic: a straight line's slope is the exponent of its growth. Dotted guides show what
    n and n log n look like; curves of `missed` are dashed."""
    points = [p for curve in curves.values() for p in curve]
    low_x, high_x = log_range([size for size, _ in points])
    low_y, high_y = log_range([ns for _, ns in points])
    right, bottom = WIDTH - 260, HEIGHT - BOTTOM

    def x(size):
        return LEFT + (math.log10(size) - low_x) / (high_x - low_x) * (right - LEFT)

    def y(ns):
        return bottom - (math.log10(ns) - low_y) / (high_y - low_y) * (bottom - TOP)

    parts = frame(HEIGHT, title) + [text((LEFT + right) / 2, HEIGHT - 16, "size")]
    for decade in range(low_y, high_y + 1):
        parts += [f'<line x1="{LEFT}" x2="{right}" y1="{y(10 ** decade):.1f}" y2="{y(10 ** decade):.1f}" stroke="#ddd"/>',
                  text(LEFT - 8, y(10 ** decade) + 4, time_text(10 ** decade), "end")]
    parts += [text(x(10 ** d), bottom + 20, f"{10 ** d:,}") for d in range(max(low_x, 0), high_x + 1)]
    for name, grown in GUIDES:
        # From the lower left corner, as far as the picture goes.
        sizes = [10 ** (low_x + (high_x - low_x) * i / 60) for i in range(61)]
        line_ns = [(size, 10 ** low_y * grown(size) / grown(sizes[0])) for size in sizes]
        inside = [(size, ns) for size, ns in line_ns if ns <= 10 ** high_y]
        path = " ".join(f"{'L' if i else 'M'}{x(size):.1f},{y(ns):.1f}" for i, (size, ns) in enumerate(inside))
        parts += [f'<path d="{path}" fill="none" stroke="#999" stroke-dasharray="1 4"/>',
                  text(x(inside[-1][0]) - 6, y(inside[-1][1]) + 14, name, "end", 11, "#777")]
    for i, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        dash = ' stroke-dasharray="8 4"' if name in missed else ""
        path = " ".join(f"{x(size):.1f},{y(ns):.1f}" for size, ns in curve)
        parts += [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>',
                  *(f'<circle cx="{x(size):.1f}" cy="{y(ns):.1f}" r="3" fill="{colour}"/>' for size, ns in curve),
                  text(right + 12, TOP + 20 + 20 * i, name + (" MISSED" if name in missed else ""), "start", 12, colour)]
    return "\n".join(parts + ["</svg>"]) + "\n"

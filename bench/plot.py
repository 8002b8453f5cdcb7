"""Plots as SVG: alloc + free against living allocations, bars beside their goals, growth curves."""
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
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{colour}">{escape(content)}</text>')


def grid(axes):
    right = WIDTH - RIGHT
    for decade in range(axes.low, axes.high + 1):
        y = axes.y(10 ** decade)
        yield f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield text(LEFT - 8, y + 4, time_text(10 ** decade), "end")
    for live in axes.lives:
        yield text(axes.x(live), HEIGHT - BOTTOM + 20, f"{live:,}")


def line(axes, name, points, colour):
    path = " ".join(f"{axes.x(live):.1f},{axes.y(r['median']):.1f}" for live, r in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for live, r in points:
        x = axes.x(live)
        yield (f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{axes.y(r["q1"]):.1f}" y2="{axes.y(r["q3"]):.1f}" '
               f'stroke="{colour}" stroke-width="6" stroke-opacity="0.35"/>')
        yield f'<circle cx="{x:.1f}" cy="{axes.y(r["median"]):.1f}" r="3.5" fill="{colour}"/>'
    live, last = points[-1]
    yield text(axes.x(live) + 12, axes.y(last["median"]) + 4, f"{name}: {time_text(last['median'])}", "start",
               colour=colour)


def svg(rows, loop="alloc_free"):
    lines = series_of(rows, loop)
    axes = Axes(lines)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             text(WIDTH / 2, 26, "cuMemAlloc + cuMemFree over a driver that returns at once", size=16),
             text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "other living allocations of the process"), *grid(axes)]
    for i, (name, points) in enumerate(lines.items()):
        parts += line(axes, name, points, COLOURS[i % len(COLOURS)])
    return "\n".join(parts + ["</svg>"]) + "\n"


def frame(height, title):
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>', text(WIDTH / 2, 26, title, size=16)]


def bars(title, rows, most=2.0, line="goal"):
    """Rows of (name, value as a part of its goal, value as text), with a line where the goal is."""
    left, step, top = 300, 20, 46
    scale = (WIDTH - left - 90) / most
    height = top + step * len(rows) + 30
    parts = frame(height, title)
    for i, (name, part, words) in enumerate(rows):
        y = top + step * i
        wide = scale * max(0.0, min(part, most))
        parts += [text(left - 8, y + 14, name, "end", 12),
                  f'<rect x="{left}" y="{y + 3}" width="{wide:.1f}" height="{step - 6}" '
                  f'fill="{COLOURS[1] if part <= 1 else COLOURS[2]}"/>',
                  text(left + wide + 6, y + 14, words + (" >" if part > most else ""), "start", 11)]
    goal = left + scale
    parts += [f'<line x1="{goal:.1f}" x2="{goal:.1f}" y1="{top}" y2="{height - 26}" stroke="#222"/>',
              text(goal, height - 10, line, size=12)]
    return "\n".join(parts + ["</svg>"]) + "\n"


def parts_of_one(title, rows):
    """Rows of (name, part, part as text)."""
    return bars(title, rows, most=1.0, line="")


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
                  text(x(inside[-1][0]) + 4, y(inside[-1][1]) + (12 if name == "n" else -2), name, "start", 11, "#777")]
    for i, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        dash = ' stroke-dasharray="8 4"' if name in missed else ""
        path = " ".join(f"{x(size):.1f},{y(ns):.1f}" for size, ns in curve)
        parts += [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>',
                  *(f'<circle cx="{x(size):.1f}" cy="{y(ns):.1f}" r="3" fill="{colour}"/>' for size, ns in curve),
                  text(right + 12, TOP + 20 + 20 * i, name + (" MISSED" if name in missed else ""), "start", 12, colour)]
    return "\n".join(parts + ["</svg>"]) + "\n"

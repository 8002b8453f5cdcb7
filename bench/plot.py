"""A plot as SVG: alloc + free against living allocations, one line a configuration, logarithmic upwards."""
import math
from xml.sax.saxutils import escape

from bench.report import time_text

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 80, 150, 50, 60
COLOURS = ("#4c4c4c", "#0b7a75", "#c8553d", "#5b5fc7", "#b8860b", "#7a306c")


def series_of(rows, loop):
    """{configuration: [(live, summary)]}, by live."""
    lines = {}
    for row in sorted((r for r in rows if r["loop"] == loop and not r["idle_processes"]), key=lambda r: r["live"]):
        for name, result in row["results"].items():
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

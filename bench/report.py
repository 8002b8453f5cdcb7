"""Tables for people."""
import textwrap

CELL_MOST = 60  # more is continued below
UNITS = ((1e6, "ms"), (1e3, "us"), (1, "ns"))


def time_text(ns, sign=""):
    size = abs(ns)
    factor, unit = next((u for u in UNITS if size >= u[0]), UNITS[-1])
    return f"{ns / factor:{sign}.{2 if size < 10 * factor else 1 if size < 100 * factor else 0}f} {unit}"


def last_line(text, default=""):
    """What a program said last, which is mostly why it failed."""
    return (text.strip().splitlines() or [default])[-1]


def title(row):
    parts = [row["title"]]
    if row["live"]:
        parts.append(f"{row['live']:,} live")
    if row["idle_processes"]:
        parts.append(f"{row['idle_processes']} idle processes")
    return ", ".join(parts)


def goal_text(goal):
    if not goal:
        return ""
    return f"<= {time_text(goal['difference_at_most'])}: {'met' if goal['met'] else 'MISSED'}"


def syscalls_text(value):
    return "-" if value is None else f"{value:g}"


def failed_text(result):
    return f"did not run: {result['error']}"


def cells(row, name, base):
    direct, other = row["results"][base], row["results"][name]
    if "error" in other:
        return [title(row), time_text(direct["median"]), *[""] * 6, failed_text(other)]
    above, ratio = other["difference"], other["ratio"]
    return [title(row), time_text(direct["median"]), time_text(other["median"]),
            f"{time_text(other['q1'])} .. {time_text(other['q3'])}",
            f"{time_text(above['median'], '+')}",
            f"{time_text(above['low'], '+')} .. {time_text(above['high'], '+')}",
            f"{ratio['median']:.2f}", syscalls_text(other["syscalls_per_call"]), goal_text(other.get("goal"))]


def wrapped(line):
    """As many lines as its longest cell needs; the first one says what it is about, and stays whole."""
    cells = [line[:1], *(textwrap.wrap(text, CELL_MOST) or [""] for text in line[1:])]
    return [[cell[i] if i < len(cell) else "" for cell in cells] for i in range(max(map(len, cells)))]


def is_words(column):
    """Words and lists begin at the left, figures end at the right."""
    figures = [text[:1].isdigit() or text[:1] in "+-" for text in column if text]
    return sum(figures) * 2 < len(figures) or any(", " in text for text in column)


def align(lines):
    """Of a head and rows of cells."""
    lines = [part for line in lines for part in wrapped(line)]
    columns = list(zip(*lines))
    widths = [max(map(len, column)) for column in columns]
    words = [i == 0 or is_words(column[1:]) for i, column in enumerate(columns)]
    return ["  ".join(text.ljust(w) if left else text.rjust(w) for text, w, left in zip(line, widths, words)).rstrip()
            for line in lines]


def table(rows, name, base):
    """One configuration against the base, as lines."""
    head = ["", base, name, "middle half", "above " + base, "(95% confidence)", "ratio", "syscalls", "goal"]
    return align([head] + [cells(row, name, base) for row in rows])


def conditions(document):
    """When, where and how busy that machine was."""
    m = document["machine"]
    load = document["load"]
    return (f"{document['date']}, {m['cpu']}, {m['cores']} cores, load {load[0]:.1f} .. {load[1]:.1f}, revision "
            f"{document['revision']}" + (", --quick" if document["quick"] else "") + unfinished(document))


def unfinished(document):
    """For a title or a line about a document that doesn't have everything."""
    return "" if document.get("complete", True) else ", incomplete"


def machine_text(document):
    return (f"{conditions(document)}, pinned to core {document['machine']['pinned_core']}, "
            f"{document['rounds']} rounds")


def markdown_table(head, rows):
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows]) + "\n"


def text(document):
    names = [c["name"] for c in document["configurations"]]
    parts = [f"Cost per call over {document['driver']}", machine_text(document)]
    for name in names[1:]:
        parts += ["", *table(document["rows"], name, names[0])]
    return "\n".join(parts) + "\n"


def markdown_row(row, names):
    results = row["results"]
    above = results[names[1]]["difference"]
    goal = results[names[1]]["goal"]
    counts = [results[n].get("syscalls_per_call") for n in names[1:]]
    return [title(row), *(failed_text(results[n]) if "error" in results[n] else time_text(results[n]["median"]) for n in names),
            f"{time_text(above['median'], '+')} ({time_text(above['low'], '+')} .. {time_text(above['high'], '+')})",
            " / ".join(syscalls_text(c if c is None else round(c, 3)) for c in counts), goal_text(goal)]


def markdown(document):
    """All configurations in one table, from which docs/dev/benchmarks.md is written."""
    names = [c["name"] for c in document["configurations"]]
    head = ["", *names, f"{names[1]} above {names[0]} (95%)", "system calls, " + " / ".join(names[1:]), "goal"]
    rows = [markdown_row(row, names) for row in document["rows"]]
    return f"{machine_text(document)}\n\n{markdown_table(head, rows)}"

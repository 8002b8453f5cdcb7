// Elements of the page. All text goes through textContent, so that no name of a user is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") node.textContent = value;
    // Styles are set one by one: the content policy of the page refuses style attributes.
    else if (key === "style") for (const [name, v] of Object.entries(value)) node.style.setProperty(name, v);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

export const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

// Puts `next` in the place of what `target` has, unless both say the same. Focus and selection stay that way.
export function put(target, ...next) {
  const box = document.createElement("div");
  box.append(...next);
  if (box.innerHTML === target.innerHTML) return;
  const key = document.activeElement && target.contains(document.activeElement) && document.activeElement.dataset.key;
  target.replaceChildren(...box.childNodes);
  if (key) target.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

// columns: [{title, cell(row) -> node or text, number, all, label}]
export function table(columns, rows, caption) {
  const head = el("tr", {}, ...columns.map((c) => el("th", { scope: "col", class: c.number && "number", text: c.title })));
  const body = rows.map((row) => el("tr", {}, ...columns.map((c) =>
    el("td", { class: [c.number && "number", c.all && "all"].filter(Boolean).join(" ") || null, "data-label": c.all ? null : c.title }, c.cell(row)))));
  return el("table", { class: "wide", "aria-label": caption }, el("thead", {}, head), el("tbody", {}, ...body));
}

export const badge = (text, kind) => el("span", { class: `badge ${kind || ""}`, text });
export const none = (text) => el("p", { class: "none", text });

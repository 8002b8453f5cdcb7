// What each slice asked for and received.
import { badge, el, none, table } from "./dom.js";
import { colour, percent, since, size, span } from "./units.js";

export const sum = (session, key) => session.gpus.reduce((total, gpu) => total + (gpu[key] || 0), 0);
export const label = (session) => session.name || session.id;

export function who(session) {
  return el("div", { class: "who" },
    el("span", { class: "chip", style: { background: colour(session.id) } }),
    el("span", {}, el("b", { text: label(session) }), session.name ? el("span", { class: "soft small", text: ` ${session.id}` }) : null,
      el("br"), el("span", { class: "soft small", text: session.owner || "another user" })));
}

function bar(share, mark, color, title) {
  const width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return el("div", { class: "bar", role: "img", "aria-label": title, title },
    el("i", { style: { width, background: color } }),
    mark > 0 && mark <= 1 ? el("u", { style: { left: `calc(${mark * 100}% - 1px)` } }) : null);
}

function memory(session) {
  const granted = session.vram_bytes * Math.max(1, session.gpus.length), used = sum(session, "used_bytes"), peak = sum(session, "peak_bytes");
  const refused = sum(session, "refused"), asked = session.requested_bytes;
  return el("div", {},
    bar(used / granted, peak / granted, colour(session.id), `${size(used)} of ${size(granted)} in use, peak ${size(peak)}`),
    el("span", { text: `${size(used)} of ${size(granted)}` }),
    el("span", { class: "soft small", text: `, peak ${size(peak)}` }),
    asked && session.vram_bytes && asked !== session.vram_bytes ? el("span", { class: "soft small", text: `, asked ${size(asked)}` }) : null,
    refused ? el("span", {}, " ", badge(`refused ${refused}×`, "warn")) : null,
    session.over_bytes ? el("span", {}, " ", badge(`${size(session.over_bytes)} beyond its slice`, "bad")) : null);
}

function time(session) {
  const slicing = session.timeslicing, received = slicing ? slicing.received_minute ?? slicing.received : session.received;
  if (received === null || received === undefined) return el("span", { class: "soft", text: session.mig_profile ? "the instance's own" : "shared by the driver" });
  const asked = session.compute_request;
  return el("div", {},
    bar(received, asked, colour(session.id), `received ${percent(received)}, asked ${percent(asked)}`),
    el("span", { text: percent(received) }),
    el("span", { class: "soft small", text: asked ? ` of ${percent(asked)} asked` : " received" }));
}

function state(session, now) {
  const parts = [];
  if (session.state !== "active") parts.push(badge(session.state, "warn"));
  if (session.idle_since) parts.push(badge(`idle ${since(session.idle_since, now)}`, "warn"));
  if (!parts.length) parts.push(badge(session.pids.length ? "in use" : "held", session.pids.length ? "good" : ""));
  return el("div", {}, ...parts.flatMap((part) => [part, " "]),
    session.reason ? el("p", { class: "reason", text: session.reason }) : null);
}

const where = (session) => session.gpus.map((gpu) => `${gpu.index}${gpu.mig_profile ? ` ${gpu.mig_profile}` : ""}`).join(", ");

export function slices(sessions, now) {
  if (!sessions.length) return [none("No slice is held. `carve session request --vram 4` asks for one.")];
  const waited = (session) => (session.timeslicing ? span(session.timeslicing.waited_ns / 1e9) : "-");
  return [table([
    { title: "Slice", cell: who, all: true },
    { title: "GPU", cell: where },
    { title: "State", cell: (s) => state(s, now) },
    { title: "Memory: used of granted", cell: memory, all: true },
    { title: "GPU time: received of asked", cell: time, all: true },
    { title: "Waited", number: true, cell: waited },
    { title: "Processes", number: true, cell: (s) => String(s.pids.length) },
    { title: "Age", number: true, cell: (s) => since(s.created, now) },
  ], sessions, "Slices")];
}

export function waiting(sessions, now) {
  if (!sessions.length) return [none("Nobody waits for a slice.")];
  return [table([
    { title: "Line", number: true, cell: (s) => String(s.position) },
    { title: "Who", cell: who, all: true },
    { title: "Asked", cell: (s) => s.asked || size(s.vram_bytes) },
    { title: "Since", number: true, cell: (s) => since(s.requested, now) },
    { title: "Waits for", cell: (s) => s.reason, all: true },
  ], sessions, "Requests that wait")];
}

// The turns of the last seconds, a lane for each session of each GPU whose time is sliced.
import { el, none, svg } from "./dom.js";
import { label } from "./slices.js";
import { colour, percent } from "./units.js";

const SECONDS = 30;
let turns = [], open = [];

// Adds the turns of an answer of /v1/timeslicing/trace and forgets old ones.
export function keep(trace) {
  const known = new Set(turns.map((t) => `${t.session} ${t.opened_ns}`));
  turns.push(...trace.turns.filter((t) => !known.has(`${t.session} ${t.opened_ns}`)));
  open = trace.open.map((turn) => ({ ...turn, closed_ns: trace.now_ns }));
  turns = turns.filter((t) => t.closed_ns > trace.now_ns - (SECONDS + 5) * 1e9);
}

const at = (ns, now) => Math.min(100, Math.max(0, 100 * (1 - (now - ns) / (SECONDS * 1e9))));

function lane(gpu, row, now) {
  const shown = [...turns, ...open].filter((turn) => turn.session === row.id && turn.gpus.includes(gpu.gpu) && turn.closed_ns > now - SECONDS * 1e9);
  return svg("svg", { class: "lane", role: "img", "aria-label": `received ${percent(row.received_minute)} in the last minute` },
    ...shown.map((turn) => {
      const from = at(turn.opened_ns, now);
      return svg("rect", { x: `${from.toFixed(2)}%`, width: `${Math.max(0.15, at(turn.closed_ns, now) - from).toFixed(2)}%`, height: "100%", fill: colour(row.id) });
    }));
}

function chart(gpu, sessions, now) {
  const marks = [];
  for (let s = SECONDS; s >= 0; s -= 10) marks.push(el("span", { text: s ? `-${s} s` : "now" }));
  const rows = gpu.sessions.flatMap((row) => [
    el("span", { class: "name", text: sessions.has(row.id) ? label(sessions.get(row.id)) : row.id }), lane(gpu, row, now),
    el("span", { class: "got", text: percent(row.received_minute) })]);
  return el("article", {}, el("h3", {}, `GPU ${gpu.gpu} `, el("span", { class: "sub", text: `${gpu.mode}, leases of ${gpu.lease_ns / 1e6} ms, plan ${gpu.plan_ns / 1e9} s` })),
    el("div", { class: "lanes" }, el("span"), el("div", { class: "marks" }, ...marks), el("span"), ...rows));
}

export function leases(slicing, sessions, now) {
  const known = new Map(sessions.map((session) => [session.id, session])), shown = slicing.filter((gpu) => gpu.mode !== "off" && gpu.sessions.length);
  if (!shown.length) return [none("No GPU's time is sliced among sessions now. `carve timeslicing --mode fair` begins.")];
  return [el("div", { class: "cards" }, ...shown.map((gpu) => chart(gpu, known, now)))];
}

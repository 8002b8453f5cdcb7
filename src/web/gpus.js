// GPUs as bars of slices.
import { badge, el, none } from "./dom.js";
import { label } from "./slices.js";
import { colour, size } from "./units.js";

const part = (bytes, total) => ({ width: `${(100 * bytes) / total}%` });

function segment(session, gpu, own) {
  const used = Math.min(1, own.vram_bytes ? own.used_bytes / own.vram_bytes : 0), words = `${label(session)}: ${size(own.used_bytes)} of ${size(own.vram_bytes)}`;
  return el("span", { class: "slice", style: { ...part(own.vram_bytes, gpu.memory_bytes), background: colour(session.id) }, title: words },
    el("i", { style: { width: `${used * 100}%`, background: colour(session.id) } }),
    el("em", { text: own.vram_bytes / gpu.memory_bytes > 0.12 ? label(session) : "" }));
}

function line(session, own) {
  return el("li", {}, el("span", { class: "chip", style: { background: colour(session.id) } }),
    el("span", { text: label(session) }), el("span", { class: "soft", text: session.owner || "" }),
    own.mig_profile ? badge(own.mig_profile) : null,
    el("span", { class: "end", text: `${size(own.used_bytes)} of ${size(own.vram_bytes)}` }));
}

const extra = (kind, words, bytes) => bytes > 0 ? el("li", {}, el("span", { class: `chip ${kind}` }), el("span", { text: words }), el("span", { class: "end", text: size(bytes) })) : null;

function state(gpu) {
  const parts = [];
  if (gpu.state && gpu.state !== "ok") parts.push(badge(gpu.state, gpu.drain ? "warn" : "bad"));
  if (gpu.mig) parts.push(badge("MIG"));
  if (gpu.compute_mode && gpu.compute_mode !== "off") parts.push(badge(`time: ${gpu.compute_mode}`));
  if (gpu.utilization !== null && gpu.utilization !== undefined) parts.push(badge(`busy ${gpu.utilization}%`, gpu.utilization > 0 ? "good" : ""));
  return parts;
}

function card(gpu, sessions) {
  const own = sessions.flatMap((session) => session.gpus.filter((g) => g.uuid === gpu.uuid).map((g) => [session, g]));
  const shown = own.reduce((total, [, g]) => total + g.vram_bytes, 0), others = Math.max(0, gpu.promised_bytes - shown);
  const reason = gpu.drain?.reason || gpu.state_reason || gpu.mig_problem;
  return el("article", { class: "gpu" },
    el("header", {}, el("h3", { text: `GPU ${gpu.index}` }), el("span", { class: "soft small", text: gpu.name }), ...state(gpu)),
    el("div", { class: "stack", role: "img", "aria-label": `${size(gpu.promised_bytes)} of ${size(gpu.memory_bytes)} promised, ${size(gpu.available_bytes)} free` },
      ...own.map(([session, g]) => segment(session, gpu, g)),
      others > 0 ? el("span", { class: "outside", style: part(others, gpu.memory_bytes), title: `slices of others: ${size(others)}` }) : null,
      gpu.outside_bytes > 0 ? el("span", { class: "outside", style: part(gpu.outside_bytes, gpu.memory_bytes), title: `outside carve: ${size(gpu.outside_bytes)}` }) : null,
      el("span", { class: "reserved", style: part(gpu.reserved_bytes || 0, gpu.memory_bytes), title: `the driver's own: ${size(gpu.reserved_bytes)}` })),
    el("ul", { class: "legend" }, ...own.map(([session, g]) => line(session, g)),
      extra("outside", "slices of other users", others), extra("outside", "programs outside carve", gpu.outside_bytes),
      el("li", {}, el("span", { class: "chip", style: { background: "var(--track)" } }), el("span", { text: "free" }),
        el("span", { class: "end", text: `${size(gpu.available_bytes)} of ${size(gpu.memory_bytes)}` }))),
    reason ? el("p", { class: "reason", text: reason }) : null);
}

export function gpus(list, sessions, why) {
  if (!list.length) return [none(why || "No GPU is here.")];
  return [el("div", { class: "cards" }, ...list.map((gpu) => card(gpu, sessions)))];
}

// The page: asks carved for what the viewer may see, and draws it. It changes nothing.
//
// carved tells by server-sent events that there is news (GET /v1/web/news). Each time the page asks for the lists
// that `carve top` asks for, and draws them. Nothing is asked while the page is hidden.
import { el, put } from "./dom.js";
import { gpus } from "./gpus.js";
import { queues } from "./jobs.js";
import { keep, leases } from "./leases.js";
import { close as closeLog, follow, open as openLog } from "./log.js";
import { report } from "./report.js";
import { slices, waiting } from "./slices.js";
import { percent, size } from "./units.js";

const $ = (id) => document.getElementById(id);
const REPORT_EVERY_MS = 60000, JOBS_SHOWN = 100;
let latest = null, reportAt = 0, asking = false, again = false, source = null, newsAt = 0, pressed = false;

async function get(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" });
  if (answer.ok) return answer.json();
  const body = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(body.error?.message || answer.statusText), { status: answer.status, hint: body.error?.hint });
}

// A list that this daemon lacks, or does not permit, is left out.
const optional = (path, otherwise) => get(path).catch((error) => {
  if (error.status === 401 || !error.status) throw error;
  return otherwise;
});

function status(state, words) {
  $("status").dataset.state = state;
  $("status").textContent = words;
}

function tell(error) {
  $("notice").hidden = !error;
  if (!error) return;
  $("notice").replaceChildren(...(error.status === 401
    ? ["You are not signed in. ", el("code", { text: "carve web" }), " on this host prints a link that signs you in."]
    : [`${error.message}${error.hint ? `; ${error.hint}` : ""}`]));
  status("lost", error.status === 401 ? "signed out" : "no answer");
}

// Sessions come in parts.
async function sessionsGet() {
  const all = [];
  for (let page = ""; ;) {
    const part = await get(`/v1/sessions?living=${encodeURIComponent(page)}`);
    all.push(...part.sessions);
    if (!part.next) return all;
    page = part.next;
  }
}

async function look() {
  const [version, list, sessions, slicing, trace, queue, jobs] = await Promise.all([
    get("/v1/version"), get("/v1/gpus"), sessionsGet(), optional("/v1/timeslicing", []),
    optional("/v1/timeslicing/trace", null), optional("/v1/queues", []), optional("/v1/jobs?ended=20", [])]);
  if (trace) keep(trace);
  latest = { version, gpus: list, sessions, slicing, now_ns: trace?.now_ns || 0, queues: queue, jobs };
  if (Date.now() - reportAt > REPORT_EVERY_MS) {
    reportAt = Date.now();
    draw.report = await optional("/v1/report?by=user", null);
  }
  status("live", "live");
  tell(null);
  draw();
  follow(get);
}

// One look at a time; news that come meanwhile are looked at after it.
async function refresh() {
  if (document.hidden) return;
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  try {
    await look();
  } catch (error) {
    tell(error);
  }
  asking = false;
  if (again) {
    again = false;
    refresh();
  }
}

function figures(data) {
  const held = data.sessions.filter((s) => s.state !== "waiting"), total = (key) => data.gpus.reduce((sum, gpu) => sum + (gpu[key] || 0), 0);
  const figure = (value, words) => el("div", { class: "figure" }, el("b", { text: value }), el("span", { text: words }));
  const busy = data.gpus.filter((gpu) => Number.isFinite(gpu.utilization));
  return [
    figure(String(data.gpus.length), data.gpus.length === 1 ? "GPU" : "GPUs"),
    figure(String(held.length), held.length === 1 ? "slice" : "slices"),
    figure(`${size(total("promised_bytes"))}`, `promised of ${size(total("memory_bytes"))}`),
    figure(`${size(total("used_bytes"))}`, "in use"),
    figure(busy.length ? percent(busy.reduce((sum, gpu) => sum + gpu.utilization / 100, 0) / busy.length) : "-", "busy"),
    figure(String(data.sessions.length - held.length), "waiting"),
    figure(String(data.jobs.filter((j) => j.state === "queued" || j.state === "running").length), "jobs queued or running"),
  ];
}

function draw() {
  const data = latest, now = Date.now(), word = $("filter").value.trim().toLowerCase();
  // A pressed element stays in its place until the click has been dealt with.
  if (!data || pressed) return;
  const fits = (s) => !word || [s.id, s.name, s.owner, s.state, ...s.gpus.map((g) => `${g.index} ${g.name}`)].join(" ").toLowerCase().includes(word);
  const fitsJob = (j) => !word || [j.id, j.name, j.queue, j.user, j.state].join(" ").toLowerCase().includes(word);
  const shown = data.sessions.filter(fits), held = shown.filter((s) => s.state !== "waiting");
  const body = (id) => $(id).querySelector(".body");
  $("host").textContent = [data.version.host, `carve ${data.version.version}`, data.version.driver_version && `driver ${data.version.driver_version}`].filter(Boolean).join(", ");
  put($("summary"), ...figures(data));
  put(body("slices"), ...slices(held, now));
  put(body("gpus"), ...gpus(data.gpus, data.sessions.filter((s) => s.state !== "waiting"), data.version.no_gpu_reason));
  put(body("waiting"), ...waiting(shown.filter((s) => s.state === "waiting"), now));
  put(body("leases"), ...leases(data.slicing, data.sessions, data.now_ns));
  put(body("queues"), ...queues(data.queues, data.jobs.filter(fitsJob).slice(0, JOBS_SHOWN), now));
  put(body("report"), ...report(draw.report));
}

function listen() {
  source?.close();
  source = null;
  if (document.hidden) return;
  source = new EventSource("/v1/web/news");
  source.addEventListener("news", () => {
    newsAt = Date.now();
    refresh();
  });
  // Each answer ends with its news. An end without news says that carved has gone, or refuses.
  source.onerror = () => {
    if (Date.now() - newsAt > 500) refresh();
    if (source?.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches, now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* The choice holds for this page alone. */ }
}

function showLog(event) {
  const job = event.target.closest("[data-job]")?.dataset.job;
  if (!job) return;
  openLog(job);
  follow(get);
}

// The job has the focus again.
function leaveLog() {
  $("queues").querySelector(`[data-key="job-${CSS.escape(closeLog())}"]`)?.focus();
}

function release() {
  setTimeout(() => {
    pressed = false;
    draw();
  });
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === $("filter")) {
    if (event.key === "Escape") {
      $("filter").value = "";
      $("filter").blur();
      draw();
    }
    return;
  }
  if (event.key === "Escape" && !$("log").hidden) {
    leaveLog();
  } else if (event.key === "/") {
    event.preventDefault();
    $("filter").focus();
  } else if (event.key === "t") {
    theme();
  } else if (event.key >= "1" && event.key <= "6") {
    const section = $(["slices", "gpus", "waiting", "leases", "queues", "report"][event.key - 1]);
    section.scrollIntoView();
    section.focus({ preventScroll: true });
  }
}

try { document.documentElement.dataset.theme = localStorage.getItem("theme") || ""; } catch { /* The system's choice holds. */ }
$("theme").addEventListener("click", theme);
$("filter").addEventListener("input", draw);
$("queues").addEventListener("click", showLog);
$("log-close").addEventListener("click", leaveLog);
document.addEventListener("pointerdown", () => { pressed = true; });
document.addEventListener("pointerup", release);
document.addEventListener("pointercancel", release);
document.addEventListener("keydown", key);
document.addEventListener("visibilitychange", () => {
  listen();
  refresh();
});
listen();
refresh();

// Queues, and the jobs in them.
import { badge, el, none, table } from "./dom.js";
import { since, size } from "./units.js";

const KIND = { running: "good", done: "", failed: "bad", lost: "bad", cancelled: "", queued: "warn", held: "warn" };

function ran(job, now) {
  if (!job.started) return "-";
  return since(job.started, job.ended ? Date.parse(job.ended) : now);
}

// A job that has begun has a log, which the page opens.
function name(job) {
  const words = [el("b", { text: job.id }), ` ${job.name}`];
  return el("span", {}, job.log ? el("button", { type: "button", class: "job", title: "Show its log", "data-job": job.id, "data-key": `job-${job.id}` }, ...words)
    : el("span", {}, ...words), el("br"), el("span", { class: "soft small", text: job.user || "" }));
}

export function queues(list, jobs, now) {
  const left = list.length ? table([
    { title: "Queue", cell: (q) => el("b", { text: q.name }), all: true },
    { title: "Size", cell: (q) => q.size || "the job's" },
    { title: "Waiting", number: true, cell: (q) => String(q.waiting) },
    { title: "Running", number: true, cell: (q) => String(q.running) },
    { title: "Why it waits", cell: (q) => q.reason || (q.agent ? "" : "no agent serves it"), all: true },
  ], list, "Queues") : none("No queue has an agent or a job.");
  const right = jobs.length ? table([
    { title: "Job", cell: name, all: true },
    { title: "Queue", cell: (j) => j.queue },
    { title: "State", cell: (j) => badge(j.exit_code ? `${j.state} ${j.exit_code}` : j.state, KIND[j.state]) },
    { title: "Memory", number: true, cell: (j) => (j.granted_bytes ? size(j.granted_bytes.reduce((a, b) => a + b, 0)) : j.size || "-") },
    { title: "Ran", number: true, cell: (j) => ran(j, now) },
    { title: "Why", cell: (j) => j.reason || "", all: true },
  ], jobs, "Jobs") : none("No job is in the queues. `carve enqueue --queue NAME -- CMD` adds a job.");
  return [el("div", { class: "two" }, el("div", {}, left), el("div", {}, right))];
}

// Queues, and the jobs in them.
import { badge, el, none, table } from "./dom.js";
import { since, size } from "./units.js";

const KIND = { running: "good", done: "", failed: "bad", lost: "bad", cancelled: "", queued: "warn", held: "warn" };

function ran(job, now) {
  if (!job.started) return "-";
  return since(job.started, job.ended ? Date.parse(job.ended) : now);
}

function logs(job) {
  const details = el("details", { "data-job": job.id }, el("summary", { text: "log", "data-key": `log-${job.id}` }), el("pre", { text: `carve job logs ${job.id}` }));
  return job.log ? details : "-";
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
    { title: "Job", cell: (j) => el("span", {}, el("b", { text: j.id }), ` ${j.name}`, el("br"), el("span", { class: "soft small", text: j.user || "" })), all: true },
    { title: "Queue", cell: (j) => j.queue },
    { title: "State", cell: (j) => badge(j.exit_code ? `${j.state} ${j.exit_code}` : j.state, KIND[j.state]) },
    { title: "Memory", number: true, cell: (j) => (j.granted_bytes ? size(j.granted_bytes.reduce((a, b) => a + b, 0)) : j.size || "-") },
    { title: "Ran", number: true, cell: (j) => ran(j, now) },
    { title: "Why", cell: (j) => j.reason || "", all: true },
    { title: "Log", cell: logs },
  ], jobs, "Jobs") : none("No job is in the queues. `carve enqueue --queue NAME -- CMD` adds a job.");
  return [el("div", { class: "two" }, el("div", {}, left), el("div", {}, right))];
}

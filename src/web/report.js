// The report of the last month.
import { el, none, table } from "./dom.js";
import { hours, size, span } from "./units.js";

const HOUR_NS = 3.6e12;

export function report(answer) {
  if (!answer) return [none("This daemon has no report for you.")];
  if (!answer.rows.length) return [none("Nothing was held in the last 30 days.")];
  return [table([
    { title: "User", cell: (r) => el("b", { text: r.user }), all: true },
    { title: "GPU-hours held", number: true, cell: (r) => hours(r.gpu_ns / HOUR_NS) },
    { title: "GPU-hours used", number: true, cell: (r) => (r.used_ns === null ? "-" : hours(r.used_ns / HOUR_NS)) },
    { title: "Asked", number: true, cell: (r) => size(r.asked_bytes) },
    { title: "Peak", number: true, cell: (r) => size(r.peak_bytes) },
    { title: "Sessions", number: true, cell: (r) => String(r.sessions) },
    { title: "Jobs", number: true, cell: (r) => String(r.jobs) },
    { title: "Refused", number: true, cell: (r) => String(r.refusals) },
    { title: "Waited", number: true, cell: (r) => span(r.wait_ns / 1e9) },
  ], answer.rows, "Report")];
}

// The report of the last month.
import { none, table } from "./dom.js";
import { hours, size, span } from "./units.js";

export function report(answer) {
  if (!answer) return [none("This daemon has no report for you.")];
  if (!answer.rows.length) return [none("Nothing was held in the last 30 days.")];
  return [table([
    { title: "User", cell: (r) => r.key, all: true },
    { title: "GPU-hours held", number: true, cell: (r) => hours(r.held_hours) },
    { title: "GPU-hours used", number: true, cell: (r) => hours(r.used_hours) },
    { title: "Asked", number: true, cell: (r) => size(r.asked_bytes) },
    { title: "Peak", number: true, cell: (r) => size(r.peak_bytes) },
    { title: "Sessions", number: true, cell: (r) => String(r.sessions) },
    { title: "Refused", number: true, cell: (r) => String(r.refusals) },
    { title: "Waited", number: true, cell: (r) => span(r.wait_seconds) },
  ], answer.rows, "Report")];
}

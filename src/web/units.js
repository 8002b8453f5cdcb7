// Sizes, times and shares as carve prints them.

const GIB = 2 ** 30, MIB = 2 ** 20;

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "-";
  if (bytes >= GIB) return `${trim(bytes / GIB)} Gi`;
  return bytes ? `${Math.round(bytes / MIB)} Mi` : "0";
}

const trim = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2)).replace(/\.0+$|(\.\d*[1-9])0+$/, "$1");

export const percent = (share) => (share === null || share === undefined ? "-" : `${(share * 100).toFixed(share && share < 0.0995 ? 1 : 0)}%`);

export function span(seconds) {
  if (!Number.isFinite(seconds)) return "-";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${String(s % 60).padStart(2, "0")}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
  return `${Math.floor(s / 86400)}d${String(Math.floor((s % 86400) / 3600)).padStart(2, "0")}h`;
}

export const since = (time, now) => (time ? span((now - Date.parse(time)) / 1000) : "-");
export const hours = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));

// Colours that differ in light and in dark mode, by the order in which sessions came.
const HUES = [172, 262, 28, 208, 332, 96, 48, 290, 190, 8, 130, 236];
const given = new Map();
export function colour(id) {
  if (!given.has(id)) given.set(id, given.size);
  const n = given.get(id);
  return `hsl(${HUES[n % HUES.length]} ${62 - 14 * (Math.floor(n / HUES.length) % 3)}% ${52 + 8 * (Math.floor(n / HUES.length) % 2)}%)`;
}

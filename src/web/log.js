// The last part of a job's log, which grows while the job runs. The daemon sends text in which nothing is more than text.
const KEPT = 256 * 1024, PIECE = 4096;
const $ = (id) => document.getElementById(id);
let shown = null;

function say(words) {
  $("log-state").textContent = words;
}

export function open(id) {
  shown = { id, next: null, attempt: null, done: false, asking: false, length: 0 };
  $("log").hidden = false;
  $("log-title").textContent = `Log of job ${id}`;
  $("log-text").replaceChildren();
  say("asking");
  $("log").focus({ preventScroll: true });
  $("log").scrollIntoView({ block: "nearest" });
}

// The ID of the job whose log was shown.
export function close() {
  const id = shown?.id;
  shown = null;
  $("log").hidden = true;
  $("log-text").replaceChildren();
  return id;
}

// Appends text, and drops the oldest text beyond what is kept. A reader who has scrolled up stays there.
function append(text) {
  const box = $("log-text"), bottom = box.scrollTop + box.clientHeight >= box.scrollHeight - 4, last = box.lastChild;
  if (last && last.length < PIECE) last.appendData(text);
  else box.append(text);
  shown.length += text.length;
  while (shown.length > KEPT && box.firstChild !== box.lastChild) {
    shown.length -= box.firstChild.length;
    box.firstChild.remove();
  }
  if (bottom) box.scrollTop = box.scrollHeight;
}

function clear(one) {
  one.next = null;
  one.length = 0;
  $("log-text").replaceChildren();
}

// Takes one answer. False: there is no more to be had now.
function take(one, part) {
  // Another attempt, or more than is kept was printed meanwhile: its last part is shown.
  const jump = one.next !== null && (part.attempt !== one.attempt || part.next < one.next || part.size - part.next > KEPT);
  one.attempt = part.attempt;
  if (jump) {
    clear(one);
    return true;
  }
  const more = part.next !== one.next && part.next < part.size;
  if (one.next === null && part.from > 0) append("(earlier output is left out)\n");
  one.next = part.next;
  if (part.text) append(part.text);
  one.done = part.ended && part.next >= part.size;
  say(one.done ? (part.size ? "the job has ended" : "the job has ended and printed nothing") : part.size ? "follows" : "nothing was printed yet");
  return more;
}

// Asks for what is new. `get` asks the daemon.
export async function follow(get) {
  const one = shown;
  if (!one || one.done || one.asking) return;
  one.asking = true;
  try {
    for (let more = true; more && shown === one;) {
      const part = await get(`/v1/jobs/log/${encodeURIComponent(one.id)}${one.next === null ? "" : `?from=${one.next}`}`);
      more = shown === one && take(one, part);
    }
  } catch (error) {
    if (shown === one) {
      say(`${error.message}${error.hint ? `; ${error.hint}` : ""}`);
      // The daemon would refuse the next call, too.
      one.done = Boolean(error.status) && error.status !== 401;
    }
  }
  one.asking = false;
}

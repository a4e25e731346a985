// How are instants, spans, sizes and ids written? For the viewer's zone and for people who are tired.

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const day = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const hour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
const figures = new Intl.NumberFormat("en-GB");

// Milliseconds since 1970 of either form that we are given: a number, or RFC 3339. null is not known.
export function instant(at) {
  if (at === null || at === undefined || at === "") return null;
  const ms = typeof at === "number" ? at : Date.parse(at);
  return Number.isNaN(ms) ? null : ms;
}

export function absolute(at) {
  const ms = instant(at);
  return ms === null ? "unknown" : `${day.format(ms)} ${clock.format(ms)} ${zoneName(ms)}`;
}

export function timeOfDay(at) {
  return clock.format(instant(at));
}

export function hourOfDay(at) {
  return hour.format(instant(at));
}

export function relative(at, now = Date.now()) {
  const ms = instant(at);
  if (ms === null) return "unknown";
  const away = Math.floor(Math.abs(now - ms) / SECOND) * SECOND;
  if (away < 2 * SECOND) return "just now";
  return ms <= now ? `${span(away)} ago` : `in ${span(away)}`;
}

// Two figures at most: 4 s, 12 min, 3 h 20 min, 5 d.
export function span(ms) {
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < MINUTE) return `${ms < 10 * SECOND ? trim(ms / SECOND) : Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) return two(ms, HOUR, "h", MINUTE, "min");
  return two(ms, DAY, "d", HOUR, "h");
}

function two(ms, large, largeName, small, smallName) {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${largeName}${rest && ms < 3 * large ? ` ${rest} ${smallName}` : ""}`;
}

export function latency(ms) {
  if (ms === null || ms === undefined) return "–";
  return ms < 10 ? `${trim(ms)} ms` : span(ms);
}

function trim(value) {
  return String(Math.round(value * 10) / 10);
}

export function count(value) {
  return value === null || value === undefined ? "–" : figures.format(value);
}

export function bytes(size) {
  if (size < 1024) return `${size} bytes`;
  return size < 1024 * 1024 ? `${trim(size / 1024)} KiB` : `${trim(size / 1024 / 1024)} MiB`;
}

export function many(number, one, several = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : several}`;
}

// Ids that begin alike (ULIDs of one minute) differ at their end.
export function shortId(id) {
  const text = String(id);
  return text.length > 14 ? `${text.slice(0, 6)}…${text.slice(-6)}` : text;
}

function zoneName(ms) {
  return zone.formatToParts(ms).find((part) => part.type === "timeZoneName")?.value ?? "";
}

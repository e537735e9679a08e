// Figures, times and words as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes as in "375 GiB" or "−1.2 TiB". */
export function bytes(value) {
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = size >= 100 || Number.isInteger(size) ? 0 : size >= 10 ? 1 : 2;
  return `${value < 0 ? "−" : ""}${Number(size.toFixed(digits))} ${UNITS[unit]}`;
}

/** Seconds as in "4 s", "12 min", "3 h 5 min", "2 d 4 h". */
export function age(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 120) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 && hours < 10 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return hours % 24 && hours < 240 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${Math.floor(hours / 24)} d`;
}

/** A share as in "98 %"; what is nearly, but not, nothing or all does not look like it. */
export function percent(part, whole) {
  if (whole <= 0) return part > 0 ? "over" : "–";
  const value = (100 * part) / whole;
  if (value > 0 && value < 1) return "< 1 %";
  if (value > 99 && value < 100) return "> 99 %";
  if (value > 100 && value < 101) return "> 100 %";
  return `${Math.round(value)} %`;
}

/** "14:03:12" of an RFC 3339 moment or milliseconds; with the day where it is not today's. */
export function clock(moment) {
  const time = new Date(moment);
  if (Number.isNaN(time.getTime())) return String(moment);
  const iso = time.toISOString();
  const day = iso.slice(0, 10);
  return day === new Date().toISOString().slice(0, 10) ? iso.slice(11, 19) : `${day} ${iso.slice(11, 19)}`;
}

export const many = (count, one, more = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;

/** "DiskTagsNotFulfilled" as "disk tags not fulfilled", "wrong-tag" as "wrong tag". */
export const spaced = (word) =>
  word.replaceAll("-", " ").replaceAll(/([a-z0-9])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);

/** A clause as a sentence; one that begins with a name stays as it is. */
export const sentence = (text) => (/^[a-z]+( |$)/.test(text) ? text[0].toUpperCase() + text.slice(1) : text);

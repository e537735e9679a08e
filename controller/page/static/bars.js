// Stacked bars. Each part differs by colour, lightness and pattern; its text alternative has the same figures.
import { el } from "./dom.js";
import { bytes } from "./words.js";

/** The parts of a disk in the order in which they are drawn, with what the legend says of them. */
export const PARTS = [
  ["reserved", "reserved, not Longhorn's"],
  ["used", "used"],
  ["planned", "planned"],
  ["held", "held for a choice"],
  ["growth", "growth"],
  ["over", "over the limit"],
  ["free", "free"],
  ["beyond", "free beyond the physical size"],
];

export const takenOf = (disk) => disk.used_bytes + disk.planned_bytes + disk.held_bytes + disk.growth_bytes;

/** Bytes by part, of a disk. `limit` and `physical` (with what is reserved) are no parts, but marks on the bar. */
export function figuresOf(disk) {
  const free = Math.max(0, disk.free_bytes);
  const real = Math.max(0, disk.maximum_bytes - disk.reserved_bytes - takenOf(disk));
  return {
    reserved: Math.max(0, disk.reserved_bytes),
    used: disk.used_bytes,
    planned: disk.planned_bytes,
    held: disk.held_bytes,
    growth: disk.growth_bytes,
    over: Math.max(0, -disk.free_bytes),
    free: Math.min(free, real),
    beyond: Math.max(0, free - real),
    physical: disk.maximum_bytes,
  };
}

export function sumOf(disks) {
  const sum = { physical: 0, ...Object.fromEntries(PARTS.map(([part]) => [part, 0])) };
  for (const disk of disks) for (const [part, size] of Object.entries(figuresOf(disk))) sum[part] += size;
  return sum;
}

/** A bar of these figures. `text`: its alternative; without one it is silent, for figures that stand beside it. */
export function bar(figures, text, classes = "") {
  const drawn = { ...figures };
  // What is over the limit is shown as such, so it is cut from what was promised last.
  let cut = figures.over;
  for (const part of ["growth", "held", "planned", "used"]) {
    const less = Math.min(cut, drawn[part]);
    drawn[part] -= less;
    cut -= less;
  }
  const shown = PARTS.filter(([part]) => drawn[part] > 0);
  const whole = shown.reduce((sum, [part]) => sum + drawn[part], 0);
  const pieces = shown.map(([part, label]) => {
    const piece = el("span", { class: `part ${part}`, title: `${bytes(figures[part])} ${label}` });
    piece.style.width = `${(100 * drawn[part]) / whole}%`;
    return piece;
  });
  if (figures.physical > 0 && whole > figures.physical * 1.01) {
    const mark = el("span", { class: "mark", title: `${bytes(figures.physical)}: the disk ends here` });
    mark.style.left = `${(100 * figures.physical) / whole}%`;
    pieces.push(mark);
  }
  const alternative = text ? { role: "img", "aria-label": text } : { "aria-hidden": "true" };
  return el("div", { class: `bar ${classes}`, ...alternative }, pieces);
}

/** What a bar shows, in words. */
export const inWords = (figures) =>
  PARTS.filter(([part]) => figures[part] > 0)
    .map(([part, label]) => `${bytes(figures[part])} ${label}`)
    .join(", ");

/** The key to the patterns, with these figures. */
export function legend(figures) {
  const always = ["used", "planned", "held", "growth", "free"];
  return el(
    "ul",
    { class: "legend" },
    PARTS.filter(([part]) => figures[part] > 0 || always.includes(part)).map(([part, label]) =>
      el(
        "li",
        {},
        el("span", { class: `swatch part ${part}`, "aria-hidden": "true" }),
        el("span", {}, el("b", {}, bytes(figures[part])), ` ${label}`),
      ),
    ),
  );
}

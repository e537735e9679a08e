// Space: the whole, how full the disks are, and the disks of each node.
import { bar, figuresOf, inWords, legend, sumOf, takenOf } from "./bars.js";
import { byId, el, name, reconcile, setOptions, setText, td, th, tr } from "./dom.js";
import { bytes, many, percent } from "./words.js";

const FIRST_NODES = 12;
const MORE_NODES = 80;
const FEW_DISKS = 12; // are seen at a glance without the spread
const STEPS = 10;

const pressure = (disk) => (disk.limit_bytes > 0 ? takenOf(disk) / disk.limit_bytes : takenOf(disk) > 0 ? 9 : 0);
const isBad = (disk) => disk.closed !== "" || disk.free_bytes < 0;
const stepOf = (disk) => Math.min(STEPS, Math.floor(pressure(disk) * STEPS + 1e-9));

const ORDERS = {
  fullest: (node) => -node.pressure,
  free: (node) => -node.free,
  largest: (node) => -node.maximum,
  name: () => 0,
};

/** Disks by node, the nodes in order, each with the figures that it is sorted by. */
function nodesOf(disks, order) {
  const nodes = new Map();
  for (const disk of disks) {
    if (!nodes.has(disk.node)) nodes.set(disk.node, { node: disk.node, disks: [], pressure: 0, free: 0, maximum: 0 });
    const node = nodes.get(disk.node);
    node.disks.push(disk);
    node.pressure = Math.max(node.pressure, pressure(disk));
    node.free += disk.closed ? 0 : Math.max(0, disk.free_bytes);
    node.maximum += disk.maximum_bytes;
  }
  const rank = ORDERS[order];
  const names = new Intl.Collator("en", { numeric: true });
  return [...nodes.values()].sort((a, b) => rank(a) - rank(b) || names.compare(a.node, b.node));
}

export class Disks {
  constructor() {
    this.overview = null;
    this.most = FIRST_NODES;
    this.step = null;
    byId("filter").addEventListener("submit", (event) => event.preventDefault());
    byId("filter").addEventListener("input", () => this.chosen());
    byId("more").addEventListener("click", () => this.showMore());
  }

  show(overview) {
    this.overview = overview;
    this.draw();
  }

  chosen() {
    this.most = FIRST_NODES;
    this.draw();
  }

  /** The button may go by this, so the focus moves on to the first node that was not there before. */
  showMore() {
    const seen = this.most;
    this.most += MORE_NODES;
    this.draw();
    const first = byId("disks").tBodies[seen]?.querySelector("th");
    first?.setAttribute("tabindex", "-1");
    first?.focus();
  }

  draw() {
    if (!this.overview) return;
    const { disks, totals } = this.overview;
    setText(byId("space-count"), `${many(totals.nodes, "node")}, ${many(totals.disks, "disk")}`);
    setOptions(byId("filter-tag"), [...new Set(disks.flatMap((disk) => disk.tags))].sort());
    this.drawTotal();
    this.drawSpread();
    const nodes = nodesOf(this.filtered(), byId("filter-sort").value);
    const shown = nodes.slice(0, this.most);
    reconcile(
      byId("disks"),
      shown,
      (node) => node.node,
      (node) => JSON.stringify(node.disks),
      nodeRows,
    );
    const left = nodes.length - shown.length;
    setText(byId("shown"), this.shownText(nodes.length, shown.length));
    byId("disks").hidden = nodes.length === 0;
    byId("more").hidden = left === 0;
    setText(byId("more"), `Show ${Math.min(left, MORE_NODES)} more of ${many(left, "node")}`);
  }

  shownText(found, shown) {
    if (this.overview.disks.length === 0) return "The leader knows no disk yet.";
    if (found === 0) return "No disk is like that.";
    return shown < found ? `${shown} of ${many(found, "node")} shown.` : `${many(found, "node")} shown.`;
  }

  drawTotal() {
    const figures = sumOf(this.overview.disks);
    const { limit_bytes: limit, maximum_bytes: maximum } = this.overview.totals;
    const text = `All disks, ${bytes(limit)} schedulable on ${bytes(maximum)}: ${inWords(figures)}`;
    const taken = takenOf(this.overview.totals);
    const signature = text + JSON.stringify(figures);
    reconcile(
      byId("total"),
      [figures],
      () => "total",
      () => signature,
      () =>
        el(
          "div",
          {},
          el(
            "p",
            { class: "total" },
            el("b", {}, `${percent(taken, limit)} taken`),
            ` of ${bytes(limit)} that Longhorn may schedule on ${bytes(maximum)} of disks`,
          ),
          bar(figures, text, "large"),
          legend(figures),
        ),
    );
  }

  /** How many disks are how full; each column is a filter. */
  drawSpread() {
    const { disks } = this.overview;
    if (disks.length <= FEW_DISKS) {
      byId("spread").replaceChildren();
      this.step = null;
      return;
    }
    const counts = Array.from({ length: STEPS + 1 }, () => 0);
    for (const disk of disks) counts[stepOf(disk)] += 1;
    const most = Math.max(...counts);
    const steps = counts.map((count, step) => ({ count, step }));
    if (!byId("spread").firstChild) {
      byId("spread").append(
        el("h3", { id: "spread-title" }, "How full the disks are, in percent"),
        el("div", { class: "spread", role: "group", "aria-labelledby": "spread-title" }),
      );
    }
    reconcile(
      byId("spread").lastChild,
      steps,
      (one) => String(one.step),
      (one) => `${one.count} ${most} ${this.step === one.step}`,
      (one) => this.column(one, most),
    );
  }

  column({ count, step }, most) {
    const width = 100 / STEPS;
    const range = step === STEPS ? "100 % and more" : `${step * width} to ${(step + 1) * width} %`;
    const height = el("span", { class: `height${step === STEPS ? " full" : ""}` });
    height.style.height = `${count ? Math.max(2, (100 * count) / most) : 0}%`;
    return el(
      "button",
      {
        type: "button",
        class: "step",
        "aria-pressed": String(this.step === step),
        "aria-label": `${range} taken: ${many(count, "disk")}`,
        title: `${range} taken: ${many(count, "disk")}`,
        onclick: () => {
          this.step = this.step === step ? null : step;
          this.chosen();
        },
      },
      el("span", { class: "amount" }, count ? String(count) : ""),
      el("span", { class: "room" }, height),
      el("span", { class: "range" }, step === STEPS ? "≥ 100" : `${step * width}`),
    );
  }

  filtered() {
    const words = byId("filter-text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const tag = byId("filter-tag").value;
    const onlyBad = byId("filter-closed").checked;
    return this.overview.disks.filter((disk) => {
      if (tag && !disk.tags.includes(tag)) return false;
      if (onlyBad && !isBad(disk)) return false;
      if (this.step !== null && stepOf(disk) !== this.step) return false;
      if (words.length === 0) return true;
      const text = [disk.node, disk.disk, disk.uuid, disk.closed, ...disk.tags].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }
}

const nodeRows = ({ node, disks }) =>
  el(
    "tbody",
    { role: "rowgroup" },
    disks.map((disk, index) => {
      const figures = figuresOf(disk);
      const over = disk.free_bytes < 0 ? " over-text" : "";
      return tr(
        index === 0 ? th({ scope: "rowgroup", rowspan: disks.length, class: "node" }, name(node)) : null,
        th(
          { class: "disk" },
          name(disk.disk),
          disk.tags.map((tag) => el("bdi", { class: "tag" }, tag)),
          disk.closed ? el("span", { class: "closed" }, "closed: ", el("bdi", {}, disk.closed)) : null,
        ),
        td("drawn", bar(figures, `${inWords(figures)}; ${physicalText(disk)}`)),
        td(`number taken${over}`, percent(takenOf(disk), disk.limit_bytes)),
        td(`number free${over}`, bytes(disk.free_bytes)),
        td("number limit", el("span", { title: physicalText(disk) }, bytes(disk.limit_bytes))),
      );
    }),
  );

const physicalText = (disk) =>
  `${bytes(disk.maximum_bytes)} of disk, ${bytes(disk.available_bytes)} of it unwritten, over-provisioning ${disk.over_percent} %`;

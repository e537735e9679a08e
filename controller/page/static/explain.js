// The search box, and its answer: why a pod waits, or where a volume lies and why there.
import { bar } from "./bars.js";
import { byId, el, name, setText, td, th, tr } from "./dom.js";
import { state, volumeLink, whyOf } from "./lists.js";
import { get } from "./poll.js";
import { bytes, clock, many, sentence, spaced } from "./words.js";

const AGAIN_MS = 10_000;
const FIRST_NODES = 10;
const MOST_NAMES = 300;
const KINDS = { pods: "pod", claims: "claim", volumes: "volume" };
const STATES = {
  waits: ["waits", "warn"],
  "let-through": ["was let through", "good"],
  runs: ["runs", "good"],
  "not-ours": ["is not ours", "neutral"],
  gone: ["is gone", "neutral"],
};
const VERDICTS = {
  sure: ["fits", "good"],
  contended: ["promised to others", "warn"],
  full: ["full", "bad"],
  unsuitable: ["unsuitable", "neutral"],
};

export class Why {
  constructor() {
    this.asked = null; // {kind, names, path}
    this.shown = "";
    this.shownPath = "";
    this.askedAt = 0;
    this.names = {};
    byId("why").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submitted();
    });
    byId("why-kind").addEventListener("input", () => this.kindChosen());
    addEventListener("hashchange", () => this.go());
    this.go();
  }

  /** Names that the box offers, of what the overview names. */
  offer(overview) {
    this.names = {
      pods: overview.waiting.map((one) => `${one.namespace}/${one.name}`),
      claims: overview.plans.map((plan) => plan.claim),
      volumes: overview.plans.map((plan) => plan.volume),
    };
    this.offerNames();
  }

  offerNames() {
    const names = [...new Set(this.names[byId("why-kind").value] ?? [])].filter(Boolean).sort().slice(0, MOST_NAMES);
    const text = names.join("\n");
    if (text === this.offered) return;
    this.offered = text;
    byId("why-names").replaceChildren(...names.map((value) => el("option", { value })));
  }

  kindChosen() {
    setText(byId("why-label"), byId("why-kind").value === "volumes" ? "name" : "namespace/name");
    this.offerNames();
  }

  submitted() {
    const kind = byId("why-kind").value;
    const names = byId("why-name")
      .value.trim()
      .split(/[\s/]+/)
      .filter(Boolean);
    const wanted = kind === "volumes" ? 1 : 2;
    if (names.length !== wanted) {
      setText(
        byId("why-wrong"),
        wanted === 1 ? "Write the name of the volume." : `Write the ${KINDS[kind]} as namespace/name.`,
      );
      byId("why-name").focus();
      return;
    }
    const address = whyOf(kind, ...names);
    if (location.hash === address) this.go();
    else location.hash = address;
  }

  /** Explain what the address names after its #; nothing if it names nothing. */
  async go() {
    const [kind, ...names] = location.hash.slice(1).split("/").map(decoded);
    setText(byId("why-wrong"), "");
    if (!(kind in KINDS) || names.length !== (kind === "volumes" ? 1 : 2) || names.some((one) => !one)) {
      this.close();
      return;
    }
    byId("why-kind").value = kind;
    byId("why-name").value = names.join("/");
    this.kindChosen();
    this.asked = { kind, names, path: `explain/${[kind, ...names].map(encodeURIComponent).join("/")}` };
    await this.ask();
    byId("answer").focus({ preventScroll: true });
    byId("answer").scrollIntoView({ block: "nearest" });
  }

  close() {
    this.asked = null;
    this.shown = "";
    byId("answer").hidden = true;
    byId("answer").replaceChildren();
  }

  /** Ask again when the answer is some seconds old. */
  async refresh() {
    if (this.asked && Date.now() - this.askedAt >= AGAIN_MS) await this.ask();
  }

  async ask() {
    const { asked } = this;
    this.askedAt = Date.now();
    let found;
    let wrong = null;
    try {
      found = await get(asked.path);
    } catch (error) {
      wrong = error;
    }
    if (asked !== this.asked) return; // something else was asked meanwhile
    const text = wrong ? String(wrong.message) : JSON.stringify(found);
    if (text === this.shown && asked.path === this.shownPath) return;
    this.shown = text;
    this.shownPath = asked.path;
    const again = byId("answer").contains(document.activeElement) && !byId("answer").hidden;
    byId("answer").replaceChildren(...(wrong ? noAnswer(asked, wrong) : answer(found)), this.closeButton());
    byId("answer").hidden = false;
    if (again) byId("answer").focus({ preventScroll: true });
  }

  closeButton() {
    return el(
      "button",
      {
        type: "button",
        class: "plain close",
        onclick: () => {
          history.pushState(null, "", location.pathname + location.search);
          this.close();
          byId("why-name").focus();
        },
      },
      "Close the answer",
    );
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

function noAnswer({ kind, names }, error) {
  const text = error.status === 404 ? error.text || "The leader knows none of that name." : sentence(error.message);
  return [
    el("h3", {}, sentence(KINDS[kind]), " ", name(names.join("/"))),
    el("p", {}, state("no answer", "warn"), " ", el("bdi", {}, sentence(text))),
  ];
}

function answer(found) {
  const [word, rank] = STATES[found.state] ?? [found.state, "neutral"];
  return [
    el(
      "h3",
      {},
      `${sentence(found.kind)} `,
      name(found.namespace ? `${found.namespace}/${found.name}` : found.name),
      " ",
      state(word, rank),
      found.since
        ? el("span", { class: "quiet" }, " since ", el("time", { datetime: found.since }, clock(found.since)))
        : null,
    ),
    el("p", { class: "cause" }, el("bdi", {}, found.text), reasonTag(found.cause)),
    found.change ? el("p", { class: "hint" }, el("b", {}, "What would help: "), el("bdi", {}, found.change)) : null,
    found.volumes.length
      ? [
          el("h4", {}, many(found.volumes.length, "volume")),
          el("ul", { class: "volumes" }, found.volumes.map(volumeItem)),
        ]
      : [],
    found.nodes.length ? nodesTable(found) : [],
  ]
    .flat()
    .filter(Boolean);
}

function volumeItem(volume) {
  const facts = [
    bytes(volume.size_bytes),
    many(volume.copies, "copy", "copies"),
    volume.is_local ? "a copy on the pod's node" : null,
  ];
  return el(
    "li",
    {},
    el("p", {}, volumeLink(volume.volume, volume.claim), ` ${facts.filter(Boolean).join(", ")}`),
    volume.reason || volume.text
      ? el("p", {}, state("finds no place", "bad"), " ", el("bdi", {}, sentence(volume.text)), reasonTag(volume.reason))
      : null,
    volume.places.length
      ? el(
          "ul",
          {},
          volume.places.map((place) =>
            el(
              "li",
              {},
              el("b", {}, place.kind),
              " on ",
              name(place.node),
              " ",
              name(place.disk),
              `, ${bytes(place.size_bytes)}`,
              place.why ? [": ", el("bdi", {}, place.why)] : null,
            ),
          ),
        )
      : null,
  );
}

function nodesTable(found) {
  const body = el("tbody", { role: "rowgroup" }, found.nodes.slice(0, FIRST_NODES).map(nodeRow));
  const rest = found.nodes.slice(FIRST_NODES);
  const showRest = (event) => {
    const first = rest.map(nodeRow);
    body.append(...first);
    event.target.remove();
    first[0].firstChild.setAttribute("tabindex", "-1");
    first[0].firstChild.focus();
  };
  const heads = ["Node", "Verdict", "Why", "Missing"].map((title) =>
    el("th", { scope: "col", role: "columnheader", class: title === "Missing" ? "number" : null }, title),
  );
  return [
    el("h4", {}, "Nodes, the nearest miss first"),
    el(
      "table",
      { class: "misses", role: "table" },
      el("caption", { class: "unseen" }, "What is said of each node"),
      el("thead", { role: "rowgroup" }, tr(heads)),
      body,
    ),
    rest.length ? el("button", { type: "button", onclick: showRest }, `Show ${many(rest.length, "more node")}`) : null,
    found.more_nodes ? el("p", { class: "quiet" }, `and ${many(found.more_nodes, "more node")}.`) : null,
  ].filter(Boolean);
}

function nodeRow(node) {
  const [word, rank] = VERDICTS[node.verdict] ?? [node.verdict, "neutral"];
  const figures = {
    reserved: 0,
    used: node.used_bytes,
    planned: node.taken_bytes,
    held: 0,
    growth: 0,
    over: Math.max(0, -node.free_bytes),
    free: Math.max(0, node.free_bytes),
    beyond: 0,
    physical: 0,
  };
  const text = `${bytes(node.used_bytes)} used and ${bytes(node.taken_bytes)} promised of ${bytes(node.limit_bytes)}, ${bytes(node.free_bytes)} free`;
  return tr(
    th({}, name(node.node), node.disk ? [" ", el("span", { class: "quiet" }, name(node.disk))] : null),
    td("", state(word, rank)),
    td(
      "reason",
      node.text || node.reason
        ? el("p", {}, node.text ? el("bdi", {}, sentence(node.text)) : null, reasonTag(node.reason))
        : null,
      node.claim ? el("p", { class: "quiet" }, "for ", name(node.claim)) : null,
      node.limit_bytes > 0 ? [bar(figures, null), el("p", { class: "quiet" }, text)] : null,
      node.holders.length
        ? el(
            "details",
            {},
            el("summary", {}, `Who has the bytes (${node.holders.length})`),
            el("ul", {}, node.holders.map(holderItem)),
          )
        : null,
    ),
    td("number", node.missing_bytes > 0 ? bytes(node.missing_bytes) : "–"),
  );
}

/** A reason's constant word, for whoever looks it up. */
const reasonTag = (reason) => (reason ? [" ", el("span", { class: "tag", title: reason }, spaced(reason))] : null);

const holderItem = (holder) =>
  el(
    "li",
    {},
    `${bytes(holder.size_bytes)} ${holder.kind}: `,
    holder.name ? name(holder.name) : `${many(holder.count, "volume")} of other namespaces`,
    holder.until ? [" until ", clock(holder.until)] : null,
  );

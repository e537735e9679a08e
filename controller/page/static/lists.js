// The leader's facts, problems, pods that wait, plans, decisions, and what goes on inside.
import { byId, el, name, reconcile, setOptions, setText, Shortened, td, th, tr } from "./dom.js";
import { age, bytes, clock, many, sentence, spaced } from "./words.js";

const GOOD = new Set(["active", "enforced", "wired", "well"]);
const NEUTRAL = new Set(["following", ""]);
const BAD = new Set(["missing", "unknown", "closed", "failed", "unwired"]);
// What was refused or went wrong, and what came as it should; all others are neither.
const NO = new Set(["refused", "contended", "failed", "foreign", "none", "missing", "closed", "unknown"]);
const YES = new Set(["offered", "chosen", "admitted", "placed", "kept", "woken", "leading", "active", "enforced"]);
const SIGNS = { good: "●", warn: "▲", bad: "■", neutral: "○" };
const FIRST_WAITING = 5;
const FIRST_PLANS = 8;
const MOST_DECISIONS = 200;
const OLD_SECONDS = 60; // from then on it is a problem

const rankOf = (word) => (GOOD.has(word) ? "good" : NEUTRAL.has(word) ? "neutral" : BAD.has(word) ? "bad" : "warn");

/** A word with a sign whose shape says as well as its colour whether that is good. */
export const state = (word, rank = rankOf(word)) =>
  el("span", { class: `state ${rank}` }, el("span", { "aria-hidden": "true" }, SIGNS[rank]), "\u00a0", word);

/** A moment's age, which `tick` keeps true; `seconds` is how old it is now. */
export const since = (seconds, title = "") =>
  el("time", { "data-born": String(Date.now() - seconds * 1000), ...(title ? { title } : {}) }, age(seconds));

/** Let all ages be of now; called once a second. */
export function tick(now = Date.now()) {
  for (const one of document.querySelectorAll("time[data-born]"))
    setText(one, age((now - Number(one.dataset.born)) / 1000));
}

/** The address that has an object explained. */
export const whyOf = (kind, ...names) => `#${kind}/${names.map(encodeURIComponent).join("/")}`;

const ageAt = (overview, moment) => (Date.parse(overview.time) - Date.parse(moment)) / 1000;
const pod = (identity) => identity.replace(/_[^_]*$/, "");

export function showFacts(overview) {
  const row = (term, value, note = null) => ({ term, value, note });
  const old = overview.oldest_data_seconds;
  const facts = [
    row(
      "Leader",
      overview.holder ? name(pod(overview.holder)) : state("nobody leads", "bad"),
      overview.is_leading && overview.node ? ["on ", name(overview.node)] : null,
    ),
    row(
      "Term",
      overview.term === null ? "–" : String(overview.term),
      overview.since ? ["since ", since(ageAt(overview, overview.since), overview.since)] : null,
    ),
    row("Mode", state(overview.mode)),
    row("Gate", state(overview.gate)),
    row("Schedulers", wiringOf(overview.wiring)),
    row(
      "Data",
      state(`${old < 10 ? Number(old.toFixed(1)) + " s" : age(old)} old`, old > OLD_SECONDS ? "bad" : "good"),
      overview.longhorn ? ["Longhorn ", name(overview.longhorn)] : null,
    ),
  ];
  const signature = ({ term }) => {
    if (term === "Term") return `${overview.term} ${overview.since}`;
    if (term === "Data") return `${old.toFixed(1)} ${overview.longhorn}`;
    return JSON.stringify([
      overview.holder,
      overview.node,
      overview.is_leading,
      overview.mode,
      overview.gate,
      overview.wiring,
    ]);
  };
  reconcile(
    byId("facts"),
    facts,
    (fact) => fact.term,
    signature,
    ({ term, value, note }) =>
      el(
        "div",
        { class: `fact ${term.toLowerCase()}` },
        el("dt", {}, term),
        el("dd", {}, value, note ? el("span", { class: "note" }, note) : null),
      ),
  );
}

function wiringOf(wiring) {
  const names = Object.entries(wiring);
  if (names.length === 0) return state("none named", "neutral");
  const wrong = names.filter(([, word]) => word !== "wired");
  if (wrong.length === 0) return state(names.length === 1 ? "wired" : `${names.length} wired`, "good");
  return wrong.map(([scheduler, word]) => el("span", { class: "line" }, state(word), " ", name(scheduler)));
}

export function showProblems({ problems }) {
  setText(byId("problems-count"), problems.length ? String(problems.length) : "");
  const shown = problems.length ? problems : [null];
  const text = (problem) => (problem ? JSON.stringify(problem) : "none");
  reconcile(byId("problems"), shown, text, text, (problem) =>
    problem
      ? el(
          "li",
          { class: `card ${problem.severity === "failure" ? "bad" : "warn"}` },
          el(
            "p",
            {},
            state(problem.severity, problem.severity === "failure" ? "bad" : "warn"),
            " ",
            el("span", { class: "tag" }, problem.what),
          ),
          el("p", {}, el("bdi", {}, problem.text)),
          problem.hint ? el("p", { class: "hint" }, el("b", {}, "What to do: "), el("bdi", {}, problem.hint)) : null,
        )
      : el("li", { class: "card good" }, state("no problems", "good")),
  );
}

export const reasonsOf = (reasons) =>
  Object.entries(reasons).map(([reason, count]) =>
    el("span", { class: "tag", title: reason }, `${count} × ${spaced(reason)}`),
  );

export class Waiting {
  constructor() {
    this.overview = null;
    this.short = new Shortened("waiting-all", FIRST_WAITING, () => this.show(this.overview));
  }

  /** Those that wait longest first. */
  show(overview) {
    this.overview = overview;
    const { waiting, more_waiting: more } = overview;
    setText(byId("waiting-count"), waiting.length + more ? String(waiting.length + more) : "");
    const sorted = [...waiting].sort((a, b) => (a.since < b.since ? -1 : a.since > b.since ? 1 : 0));
    const shown = sorted.length ? this.short.take(sorted) : this.short.take([]).concat(null);
    const signature = (one) => (one ? JSON.stringify(one) : "none");
    reconcile(
      byId("waiting"),
      shown,
      (one) => one?.uid ?? "none",
      signature,
      (one) =>
        one ? waitingCard(overview, one) : el("li", { class: "card good" }, state("no pod waits for room", "good")),
    );
    setText(
      byId("waiting-more"),
      more ? `${many(more, "more pod")} ${more === 1 ? "waits" : "wait"} that the leader does not list.` : "",
    );
  }
}

function waitingCard(overview, one) {
  return el(
    "li",
    { class: "card" },
    el(
      "p",
      { class: "head" },
      el("a", { href: whyOf("pods", one.namespace, one.name) }, name(`${one.namespace}/${one.name}`)),
      el("span", { class: "quiet" }, "waits ", since(ageAt(overview, one.since), one.since)),
    ),
    one.text ? el("p", {}, el("bdi", {}, sentence(one.text))) : null,
    el(
      "p",
      { class: "tags" },
      reasonsOf(one.reasons),
      el(
        "span",
        { class: "quiet" },
        "last asked ",
        one.tried ? [since(ageAt(overview, one.tried), one.tried), " ago"] : "never",
        " by ",
        name(one.scheduler),
      ),
    ),
  );
}

export class Plans {
  constructor() {
    this.overview = null;
    this.short = new Shortened("plans-all", FIRST_PLANS, () => this.show(this.overview));
  }

  /** The oldest first. */
  show(overview) {
    this.overview = overview;
    const { plans, more_plans: more } = overview;
    setText(byId("plans-count"), plans.length + more ? String(plans.length + more) : "");
    const shown = this.short.take([...plans].sort((a, b) => b.age_seconds - a.age_seconds));
    const key = (plan) => [plan.kind, plan.volume, plan.node].join(" ");
    reconcile(byId("plans-rows"), shown, key, (plan) => JSON.stringify([plan.claim, plan.size_bytes]), planRow);
    byId("plans").hidden = shown.length === 0;
    const none = shown.length ? "" : "All that was promised is placed.";
    setText(byId("plans-more"), more ? `${many(more, "more plan")} that the leader does not list.` : none);
  }
}

const planRow = (plan) =>
  tr(
    th({}, volumeLink(plan.volume, plan.claim)),
    td("", name(plan.node)),
    td("", name(plan.kind)),
    td("number", bytes(plan.size_bytes)),
    td("number", since(plan.age_seconds)),
  );

/** A volume under its claim's name where it has one; nothing leads further where the caller may not see it. */
export function volumeLink(volume, claim) {
  const [namespace, claimName] = claim.split("/");
  if (claimName) return el("a", { href: whyOf("claims", namespace, claimName), title: volume }, name(claim));
  return volume ? el("a", { href: whyOf("volumes", volume) }, name(volume)) : "–";
}

export class Decisions {
  constructor() {
    this.entries = [];
    this.leader = "";
    byId("decisions-kind").addEventListener("input", () => this.draw());
  }

  /** Where those that are not here yet are found; another leader counts anew. */
  path(identity) {
    if (identity !== this.leader) {
      this.entries = [];
      this.leader = identity;
    }
    return `decisions?after=${this.last()}&last=${MOST_DECISIONS}`;
  }

  last() {
    return this.entries[0]?.serial ?? 0;
  }

  add(news) {
    const known = this.last();
    const fresh = news.filter((entry) => entry.serial > known).sort((a, b) => b.serial - a.serial);
    this.entries = [...fresh, ...this.entries].slice(0, MOST_DECISIONS);
    this.draw();
  }

  draw() {
    setOptions(byId("decisions-kind"), [...new Set(this.entries.map((entry) => entry.kind))].sort());
    const kind = byId("decisions-kind").value;
    const shown = this.entries.filter((entry) => !kind || entry.kind === kind);
    setText(byId("decisions-count"), this.entries.length ? `the last ${this.entries.length}` : "none yet");
    reconcile(
      byId("decisions"),
      shown,
      (entry) => String(entry.serial),
      () => "",
      decisionItem,
    );
  }
}

function decisionItem(entry) {
  const reasons = reasonsOf(entry.reasons);
  const mark = NO.has(entry.decision) ? "no" : YES.has(entry.decision) ? "yes" : null;
  return el(
    "li",
    { class: mark },
    el(
      "p",
      { class: "head" },
      el("time", { datetime: entry.time, title: entry.time }, clock(entry.time)),
      el("span", { class: "tag" }, name(entry.kind)),
      el("b", {}, spaced(entry.decision)),
      aboutLink(entry.about),
      entry.milliseconds > 0 ? el("span", { class: "quiet" }, `${Number(entry.milliseconds.toPrecision(2))} ms`) : null,
    ),
    entry.text ? el("p", {}, el("bdi", {}, sentence(entry.text))) : null,
    reasons.length ? el("p", { class: "tags" }, reasons) : null,
  );
}

const KINDS = { Pod: "pods", PersistentVolumeClaim: "claims", Volume: "volumes", Replica: "volumes" };

/** A name that leads to its explanation; a Replica's to that of its volume. */
function aboutLink(about) {
  const [, kind, names] = /^(\S+) (.+)$/s.exec(about) ?? [];
  if (!kind || !(kind in KINDS)) return about ? name(about) : null;
  const parts = kind === "Replica" ? [names.replace(/-r-[0-9a-f]{8}$/, "")] : names.split("/");
  return el("a", { href: whyOf(KINDS[kind], ...parts) }, name(names));
}

export function showInside(overview) {
  const workers = Object.entries(overview.workers);
  const unwell = workers.filter(([, word]) => word !== "well");
  const well = workers.filter(([, word]) => word === "well").map(([worker]) => worker);
  const waits = Object.entries(overview.waiting_replicas);
  const groups = [
    ["Workers that are not well", unwell.map(([worker, word]) => [name(worker), state(word, "bad")])],
    [
      "Workers",
      well.length ? [[el("details", {}, el("summary", {}, `${well.length} well`), name(well.join(", ")))]] : [],
    ],
    ["Schedulers", Object.entries(overview.wiring).map(([scheduler, word]) => [name(scheduler), state(word)])],
    ["Copies that the leader holds", overview.held_replicas.map((replica) => [name(replica)])],
    ["Copies left to Longhorn", overview.left_replicas.map((replica) => [name(replica)])],
    ["Copies that wait, by reason", waits.map(([reason, count]) => [spaced(reason), String(count)])],
    ["This copy", [[name(overview.identity), overview.is_leading ? "leads" : "follows"]]],
  ].filter(([, rows]) => rows.length > 0);
  const { workers: states, wiring, held_replicas: held, left_replicas: left, identity, is_leading: leads } = overview;
  const text = JSON.stringify([states, wiring, held, left, waits, identity, leads]);
  reconcile(
    byId("inside"),
    groups,
    ([title]) => title,
    () => text,
    ([title, rows]) =>
      el(
        "div",
        {},
        el("dt", {}, title),
        rows.map((row) =>
          el(
            "dd",
            {},
            row.map((cell, index) => [index ? " " : "", cell]),
          ),
        ),
      ),
  );
}

export function showCapacity(capacity) {
  const rows = Object.entries(capacity.largest_bytes).map(([copies, size]) => [
    many(Number(copies), "copy", "copies"),
    bytes(size),
  ]);
  const lost = capacity.survival;
  const nodes = [
    rows.length ? el("p", {}, "The largest plain new volume that finds its places now:") : null,
    el(
      "ul",
      { class: "fits" },
      rows.map(([copies, size]) => el("li", {}, el("b", {}, size), ` in ${copies}`)),
    ),
    lost
      ? el(
          "p",
          {},
          state(lost.is_survived ? "survives" : "does not survive", lost.is_survived ? "good" : "bad"),
          " the loss of ",
          name(lost.node),
          `: ${many(lost.copies, "copy", "copies")} of ${bytes(lost.size_bytes)} would be built anew`,
          lost.lost.length ? `, ${many(lost.lost.length, "volume")} would lose the only copy` : "",
          lost.homeless.length
            ? `, ${many(lost.homeless.length, "volume")} would find no other disk (${bytes(lost.missing_bytes)} are missing)`
            : "",
          ".",
        )
      : null,
    capacity.rebuilds.length
      ? el(
          "p",
          {},
          `${many(capacity.rebuilds.length, "volume")} with copies missing now, ${capacity.rebuilds.filter((one) => !one.is_placeable).length} of which find no disk.`,
        )
      : null,
    capacity.notes.map((note) => el("p", { class: "quiet" }, el("bdi", {}, note))),
  ];
  const text = JSON.stringify([rows, lost, capacity.rebuilds, capacity.notes]);
  reconcile(
    byId("capacity"),
    [nodes],
    () => "capacity",
    () => text,
    () => el("div", {}, nodes),
  );
}

export function showNoCapacity(error) {
  byId("capacity").replaceChildren(el("p", { class: "quiet" }, el("bdi", {}, sentence(error.message))));
}

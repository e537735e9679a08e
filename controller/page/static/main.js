// The rounds: what is asked for, and what is said when nothing answers.
import { Disks } from "./disks.js";
import { byId, el, name, setText } from "./dom.js";
import { Why } from "./explain.js";
import {
  Decisions,
  Plans,
  showCapacity,
  showFacts,
  showInside,
  showNoCapacity,
  showProblems,
  tick,
  Waiting,
} from "./lists.js";
import { get, Poller } from "./poll.js";
import { age, clock, many } from "./words.js";

const TITLE = document.title;
const CAPACITY_MS = 30_000;
const FEW_DISKS = 200;

const disks = new Disks();
const waiting = new Waiting();
const plans = new Plans();
const decisions = new Decisions();
const why = new Why();
const poller = new Poller(round, failed);
let capacityAt = 0;
let problemsSeen = null;
let reason = "";

async function round() {
  const overview = await get("overview");
  draw(overview);
  decisions.add(await get(decisions.path(overview.identity)));
  await askCapacity();
  byId("stale").hidden = true;
  reason = "";
  refresh();
  why.refresh();
}

function draw(overview) {
  byId("capacity-section").hidden = !overview.is_leading;
  if (problemsSeen === null) byId("fits").open = overview.disks.length <= FEW_DISKS;
  showFacts(overview);
  showProblems(overview);
  waiting.show(overview);
  plans.show(overview);
  showInside(overview);
  disks.show(overview);
  why.offer(overview);
  showFollower(overview);
  setText(byId("version"), overview.version);
  tellProblems(overview.problems.length);
}

/** Only while it is looked at: it is as large as the overview. */
async function askCapacity() {
  if (byId("capacity-section").hidden || !byId("fits").open || Date.now() - capacityAt < CAPACITY_MS) return;
  capacityAt = Date.now();
  await get("capacity").then(showCapacity, showNoCapacity);
}

function showFollower(overview) {
  const pod = overview.holder.replace(/_[^_]*$/, "");
  byId("follower").hidden = overview.is_leading;
  byId("follower").replaceChildren(
    el(
      "p",
      {},
      "This copy does not lead, so it decides nothing. ",
      ...(pod ? ["The leader is ", name(pod), ": forward a port to that pod."] : ["Nobody leads."]),
    ),
  );
}

/** Say a change aloud, once; and in the title for whoever looks at another tab. */
function tellProblems(count) {
  if (problemsSeen !== null && problemsSeen !== count)
    setText(byId("told"), count ? many(count, "problem") : "No problems");
  problemsSeen = count;
}

function failed(error) {
  reason =
    error.status === 401 || error.status === 403
      ? "This port asks who you are, and a browser has no token: reach the page by kubectl port-forward to the status port on the pod's loopback."
      : `The leader does not answer (${error.message}).`;
  const heard = poller.heardAt;
  setText(
    byId("stale-text"),
    heard ? `Stale since ${clock(heard)} UTC. ${reason} What is shown is of then.` : `Nothing heard yet. ${reason}`,
  );
  byId("stale").hidden = false;
  refresh();
}

/** What changes with time alone. */
function refresh() {
  const now = Date.now();
  const heard = poller.heardAt;
  const isStale = reason !== "";
  const next = Math.max(0, Math.ceil((poller.nextAt - now) / 1000));
  if (isStale) {
    setText(
      byId("fresh"),
      `${heard ? `Stale for ${age((now - heard) / 1000)}` : "No data"}, ${poller.busy ? "trying now" : `next try in ${next} s`}`,
    );
  } else if (heard) {
    setText(byId("fresh"), `Live, heard ${age((now - heard) / 1000)} ago`);
  }
  byId("fresh").classList.toggle("old", isStale);
  document.documentElement.toggleAttribute("data-stale", isStale);
  const title = `${isStale ? "stale, " : ""}${problemsSeen ? `${many(problemsSeen, "problem")}, ` : ""}${TITLE}`;
  if (document.title !== title) document.title = title;
  tick(now);
}

byId("fits").addEventListener("toggle", askCapacity);
byId("retry").addEventListener("click", () => poller.now());
setInterval(refresh, 1000);
poller.now();

// Making and changing elements. Text from the cluster becomes text nodes only, never markup.

/** An element with attributes (`on...`: listeners; null and false: left out) and children: nodes, texts, lists, nulls. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Rows and cells say what they are, since on a phone they are not laid out as a table. */
export const tr = (...cells) => el("tr", { role: "row" }, ...cells);
export const th = (attributes, ...children) =>
  el("th", { scope: "row", role: "rowheader", ...attributes }, ...children);
export const td = (classes, ...children) => el("td", { role: "cell", class: classes || null }, ...children);

export const byId = (id) => document.getElementById(id);

/** A name from the cluster: what it contains of right-to-left text changes nothing around it. */
export const name = (text) => el("bdi", { class: "name" }, text);

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Let `parent` have one child for each of `items`, in their order. A child stays while its signature does, so that focus,
 * selection and opened details survive news. `key` and `signature` give texts, `make` the element.
 */
export function reconcile(parent, items, key, signature, make) {
  const old = new Map();
  for (const child of parent.children) if (child.dataset.key !== undefined) old.set(child.dataset.key, child);
  let next = parent.firstElementChild;
  while (next && next.dataset.key === undefined) next = next.nextElementSibling;
  for (const item of items) {
    const itemKey = key(item);
    const itemSignature = signature(item);
    const before = old.get(itemKey);
    old.delete(itemKey);
    let child = before;
    if (!before || before.signature !== itemSignature) {
      child = make(item);
      child.dataset.key = itemKey;
      child.signature = itemSignature;
      if (before) {
        if (next === before) next = child;
        replaceKeepingFocus(before, child);
      }
    }
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  for (const gone of old.values()) gone.remove();
}

function replaceKeepingFocus(before, after) {
  const focused = before.contains(document.activeElement) ? document.activeElement : null;
  const open = [...before.querySelectorAll("details")].map((one) => one.open);
  const place = focused ? [...before.querySelectorAll("a, button, summary")].indexOf(focused) : -1;
  before.replaceWith(after);
  [...after.querySelectorAll("details")].forEach((one, index) => (one.open = open[index] ?? false));
  if (place >= 0) after.querySelectorAll("a, button, summary")[place]?.focus({ preventScroll: true });
}

/** Options of a select, with the first one kept; what was chosen stays chosen if it is still there. */
export function setOptions(select, values) {
  const had = [...select.options].slice(1).map((option) => option.value);
  if (had.length === values.length && had.every((value, index) => value === values[index])) return;
  const chosen = select.value;
  select.replaceChildren(select.options[0], ...values.map((value) => el("option", { value }, value)));
  select.value = values.includes(chosen) ? chosen : "";
}

/** Shows the first ones of a list, and a button that shows all. */
export class Shortened {
  constructor(buttonId, first, redraw) {
    this.button = byId(buttonId);
    this.first = first;
    this.isOpen = false;
    this.button.addEventListener("click", () => {
      this.isOpen = !this.isOpen;
      redraw();
    });
  }

  take(items) {
    this.button.hidden = items.length <= this.first;
    setText(this.button, this.isOpen ? `Show the first ${this.first}` : `Show all ${items.length}`);
    this.button.setAttribute("aria-expanded", String(this.isOpen));
    return this.isOpen ? items : items.slice(0, this.first);
  }
}

// Bring what is shown up to date in place: focus, selected text, an open menu and the place in the
// page belong to elements, and stay with those that are still there.

const HANDLERS = ["onclick", "oninput", "onchange"];
const keyOf = (node) => (node.dataset && (node.dataset.key || node.id)) || "";

const update = (old, made) => {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "style" && !made.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  // The attribute itself is forbidden by the page's policy.
  if (old.style.cssText !== made.style.cssText) old.style.cssText = made.style.cssText;
  HANDLERS.forEach((name) => { old[name] = made[name]; });
  if (made.draw) {
    charts.unobserve(made);
    old.draw = made.draw;
    drawChart(old);
  } else if (!made.hasAttribute("data-own")) updateChildren(old, [...made.childNodes]);
};

const updateChildren = (parent, made) => {
  const keys = new Set(made.map(keyOf).filter(Boolean));
  for (const child of [...parent.children]) if (keyOf(child) && !keys.has(keyOf(child))) child.remove();
  const known = new Map([...parent.children].filter(keyOf).map((child) => [keyOf(child), child]));
  let at = parent.firstChild;
  for (const node of made) {
    const key = keyOf(node);
    const old = key ? known.get(key) : at;
    if (old && old.nodeName === node.nodeName && keyOf(old) === key) {
      if (old !== at) parent.insertBefore(old, at);
      update(old, node);
      at = old.nextSibling;
    } else parent.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
};

// Show a view, or bring it up to date if it is shown already; return whether it was opened.
let place = "";
const show = (...children) => {
  const made = document.createDocumentFragment();
  made.append(...children.flat(3).filter((child) => child !== null && child !== ""));
  if (view.dataset.shown !== place) {
    const first = view.dataset.shown === undefined;
    view.dataset.shown = place;
    view.replaceChildren(made);
    if (!first) view.querySelector("h1").focus({ preventScroll: true });
    return true;
  }
  const active = document.activeElement;
  updateChildren(view, [...made.childNodes]);
  if (active !== document.activeElement && active.isConnected) active.focus({ preventScroll: true });
  return false;
};

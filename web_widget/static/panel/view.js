// The parts of the panel, and how things find their place in the list.

import { markDay } from "./bubbles.js";
import { make, makeButton } from "./host.js";

export const heading = make("h2");
export const pendingButton = makeIconButton("", "M12 7v5l3 2M12 3a9 9 0 1 0 .1 0");
export const closeButton = makeIconButton("", "M6 6l12 12M18 6L6 18");
export const list = make("ol", "list");
export const log = make("div", "log", list);
export const pending = make("div", "pending");
export const typing = make("div", "status typing", make("span", "unseen"));
export const trouble = make("div", "status trouble");
export const offline = make("div", "status");
export const input = make("textarea");
export const submit = makeIconButton("send", "M12 19V5M6 11l6-6 6 6");
export const form = make("form", "", input, submit);

function makeIconButton(className, path) {
  const [icon, line] = ["svg", "path"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  icon.setAttribute("viewBox", "0 0 24 24");
  line.setAttribute("d", path);
  icon.append(line);
  return makeButton(className, icon);
}

// Into the order of the log. What has no number yet stays at the end.
export function place(item, seq) {
  item.seq = seq;
  let next = null;
  for (const other of [...list.children].reverse()) {
    if (other === item) continue;
    if (seq === undefined || other.seq <= seq) break;
    next = other;
  }
  if (item.isConnected && item.nextElementSibling === next) return;
  keepEndInView(() => {
    list.insertBefore(item, next);
    markDay(item);
  });
}

export function showEnd() {
  log.scrollTop = log.scrollHeight;
}

// Stays at the end where the visitor is at the end, and where the visitor is otherwise.
export function keepEndInView(change) {
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 48;
  change();
  if (isAtEnd) showEnd();
}

export function setText(line, text) {
  if (line.textContent !== text) keepEndInView(() => (line.textContent = text));
}

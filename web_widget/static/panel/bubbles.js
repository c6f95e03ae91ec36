// What one message looks like: its words, when it was said, what a follow-up comes back to, and how far an own one has come.

import { make, root, texts } from "./host.js";
import { answered, shown } from "./log.js";
import { render } from "./markdown.js";
import { daysAgo, formatTime, nameDay, TIME } from "./times.js";
import { keepEndInView, list } from "./view.js";

export function makeBubble({ role, kind, text, at, asked_at: askedAt }) {
  const isOwn = role === "visitor";
  const bubble = make("li", role);
  const label = kind === "followup" ? tellAsked(askedAt) : kind === "notice" && texts.notice;
  if (label) bubble.append(make("span", "label", label));
  const words = make("div", "words", make("span", "unseen", `${isOwn ? texts.you : texts.assistant}: `));
  words.dir = "auto";
  words.append(isOwn ? text : render(text));
  bubble.append(words);
  if (at) {
    const foot = make("span", "foot", make("time"), " ", make("span", "state"));
    foot.ariaLive = "off"; // what changes here is no message
    bubble.append(foot);
    setTime(bubble, at);
  }
  return bubble;
}

export function setTime(bubble, at) {
  const time = bubble.querySelector("time");
  bubble.at = new Date((time.dateTime = at));
  time.textContent = formatTime(bubble.at, TIME);
}

function tellAsked(askedAt) {
  if (!askedAt) return texts.followup;
  const at = new Date(askedAt);
  const isToday = !daysAgo(at);
  return texts.asked[+!isToday].replace("{}", isToday ? formatTime(at, TIME) : nameDay(at));
}

// ---- Where a day begins

// Puts the day before the first message of a day, and takes it from the one that was the first.
export function markDay(item) {
  const day = item.at?.toDateString();
  const { nextElementSibling: next } = item;
  if (!day) return;
  if (next?.day === day) next.remove();
  let before = item.previousElementSibling;
  while (before && !before.at) before = before.previousElementSibling;
  if (before?.at.toDateString() === day) return;
  const mark = make("li", "day");
  mark.day = day;
  mark.seq = item.seq - 0.5;
  item.before(mark);
  // The others too: what was today when it was shown may be yesterday now.
  for (const each of list.querySelectorAll(".day")) {
    const at = new Date(each.day);
    const days = daysAgo(at);
    const relative = new Intl.RelativeTimeFormat(root.host.lang, { numeric: "auto" });
    each.textContent = days > 1 || days < 0 ? nameDay(at) : relative.format(-days, "day");
  }
}

// ---- How far what the visitor wrote has come

export function setState(bubble, words) {
  const state = bubble.querySelector(".state");
  if (state.textContent !== words) keepEndInView(() => (state.textContent = words));
}

// Told of the last one only: what holds for it holds for those before it.
export function markStates() {
  let isLast = true;
  for (const item of [...list.children].reverse()) {
    if (item.className !== "visitor" || shown.get(item.seq) !== item) continue;
    setState(item, isLast ? texts[item.seq < answered ? "seen" : "delivered"] : "");
    if (!isLast) return;
    isLast = false;
  }
}

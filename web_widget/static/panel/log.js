// What this page knows of the conversation's log, by sequence number: `cursor` is the last message read, and reading goes
// on from there after any interruption. The numbers have no holes, so one that is skipped has been missed.

import { makeBubble, markDay, markStates, setTime } from "./bubbles.js";
import { draft, showDraft } from "./draft.js";
import { host, say } from "./host.js";
import { announce, tellUnread } from "./notices.js";
import { refreshPending } from "./pending.js";
import { takeOwn } from "./sending.js";
import { session } from "./session.js";
import { beep } from "./sound.js";
import { isLeading } from "./stream.js";
import { keepEndInView, list, log, place, showEnd } from "./view.js";
import { call, post } from "./wire.js";

const MOST_UNREAD = 500;
const LARGEST_PAGE = 100;

export let cursor;
export let seen; // the last message the visitor has seen; Infinity until the service tells
export let answered; // what the visitor wrote up to this number has been taken up
export let isLoaded;
let isReadingBack;
export const shown = new Map(); // sequence number -> bubble

let first; // the first message shown; what is before it is fetched when the visitor scrolls up
let last;

// A new conversation has nothing to load.
export function startOver(isNew) {
  cursor = last = answered = 0;
  first = 1;
  seen = Infinity;
  isLoaded = isNew;
  for (const item of [...list.children]) if (item.seq > 0) item.remove();
  shown.clear();
  showDraft(false);
  showUnread();
  refreshPending();
}

// ---- Reading

export async function loadEnd() {
  if (isLoaded) return true;
  showHistory(await call("messages"));
  cursor = last;
  isLoaded = true;
  showEnd();
  catchUp(0);
  return true;
}

export async function loadOlder() {
  if (isReadingBack || first < 2) return;
  isReadingBack = true;
  try {
    const older = await call(`messages?before=${first}&limit=${LARGEST_PAGE}`);
    const fromEnd = log.scrollHeight - log.scrollTop;
    showHistory(older);
    log.scrollTop = log.scrollHeight - fromEnd;
  } finally {
    isReadingBack = false;
  }
}

function showHistory({ messages }) {
  hush(0);
  for (const message of messages) show(message);
  first = messages[0]?.seq ?? 1;
  markStates();
}

let isCatchingUp = false;
let end = 0;

// Reads what was missed, up to a number at least.
export async function catchUp(seq) {
  end = Math.max(end, seq);
  if (isCatchingUp || !isLoaded) return;
  isCatchingUp = true;
  try {
    while (cursor < end) {
      const { messages } = await call(`messages?after=${cursor}`);
      takeAll(messages.map((message) => ["message", message, true]));
      if (!messages.length) break;
    }
  } catch {
    // the next event finds the same hole
  }
  end = 0;
  isCatchingUp = false;
}

// Takes events [name, content, isRead] of the stream, or of another tab that holds it.
export function takeAll(events) {
  if (!isLoaded) return;
  const count = events.filter(([, { role }]) => role === "assistant").length;
  if (count > 2 || (count && log.ariaBusy === "true")) hush(count);
  for (const [name, content, isRead] of events) {
    const { seq, role, kind } = content;
    if (name === "seen") takeSeen(seq);
    if (name === "typing") takeUp(content.typing && draft);
    if (name === "delta") takeUp((content.is_first ? "" : draft) + content.text);
    if (name !== "message" || seq <= cursor) continue;
    if (seq > cursor + 1 && !isRead) {
      catchUp(seq);
      break;
    }
    cursor = seq;
    keepEndInView(() => {
      show(content);
      if (role === "assistant") showDraft(false);
    });
    markStates();
    say("message", { seq, role, kind });
    if (role === "assistant" && !isReading() && isLeading()) beep(); // one tab is enough
    refreshPending();
  }
  showUnread();
  acknowledge();
}

function takeUp(words) {
  showDraft(words);
  if (words === false) return;
  answered = last + 0.5;
  markStates();
}

async function takeSeen(seq) {
  seen = seen === Infinity ? seq : Math.max(seen, seq);
  try {
    // Back to the first message that was not seen, so that each of them is there and is counted.
    while (first > seen + 1 && shown.size < MOST_UNREAD && !isReadingBack) await loadOlder();
    showUnread();
  } catch {
    // told again when the stream is back
  }
}

// ---- Showing

function show(message) {
  const { seq, role, kind, at } = message;
  if (kind === "reply") answered = Math.max(answered, seq);
  const bubble = shown.get(seq) || (role === "visitor" && takeOwn(message.client_id)) || makeBubble(message);
  put(bubble, seq);
  if (bubble.at) return;
  setTime(bubble, at);
  markDay(bubble);
}

export function put(bubble, seq) {
  shown.set(seq, bubble);
  last = Math.max(last, seq);
  place(bubble, seq);
}

let hushed = 0;

// Much at once is counted, not read aloud one by one. Who reads aloud looks a little later at what has changed.
export function hush(count) {
  log.ariaBusy = true;
  hushed += count;
  announce(() => {
    const told = hushed;
    log.ariaBusy = false;
    hushed = 0;
    return told;
  });
}

// ---- Telling what was seen

export const isInSight = () => document.visibilityState === "visible";
const isReading = () => host.isOpen && isInSight();

export function showUnread() {
  let count = 0;
  if (isReadingBack) return;
  if (session && seen === Infinity) count = host.unread; // as it was, until it is known
  else if (!isReading()) for (const [seq, { className }] of shown) count += seq > seen && className === "assistant";
  tellUnread(count);
}

let isAcknowledging = false;

export async function acknowledge() {
  if (isAcknowledging || !isReading() || !(cursor > seen)) return;
  isAcknowledging = true;
  const seq = cursor;
  const isDone = await post("seen", { seq }).then(
    () => true,
    () => false, // said again with the next message, or when the stream is back
  );
  isAcknowledging = false;
  if (!isDone) return;
  takeSeen(seq);
  acknowledge();
}

// What was on the screen is no news, even before the service has heard of it.
export function noteSeen() {
  if (!isReading()) return;
  acknowledge();
  if (seen < cursor) seen = cursor;
}

// The stream: one for all tabs of this browser. A tab that comes in sight takes it, because the one that held it may have
// been stopped without notice; the others stand in line, and are told what is heard. A page out of sight gives its
// connection back after a while. Where there are no locks, each tab has its own.

import { showDraft } from "./draft.js";
import { on, texts } from "./host.js";
import { acknowledge, catchUp, cursor, hush, isInSight, loadEnd, seen, showUnread, takeAll } from "./log.js";
import { explain } from "./problems.js";
import { flush } from "./sending.js";
import { adopt, beForgotten, renewIfDue, session } from "./session.js";
import { isShared, key } from "./storage.js";
import { offline, setText } from "./view.js";
import { cutWires, makePacer, openWire, request, wake } from "./wire.js";

const SILENCE = 25_000; // the service breaks its silence every 10 s
const EAGER_ANSWER = 4_000; // how long a new connection may take right after a cut
const SLEEP_AFTER = 60_000;

const channel = window.BroadcastChannel && new BroadcastChannel(key("tabs"));
let turn; // this tab's place in the line
let leading; // the turn in which this tab holds the stream
let wire;
let isInLine = false; // for the stream, which another tab holds
let isAsleep = false;

export const isLeading = () => leading && !leading.aborted;

export async function listen(isPatient) {
  if (turn || isAsleep || !session) return;
  const mine = (turn = new AbortController());
  const { signal } = mine;
  const lead = () => {
    isInLine = false;
    leading = signal;
    return keepTrying(follow, signal);
  };
  try {
    await keepTrying(loadEnd, signal);
    if (signal.aborted) return;
    isInLine = isPatient || !isInSight();
    await (isShared() ? navigator.locks.request(key("stream"), isInLine ? { signal } : { steal: true }, lead) : lead());
  } catch (problem) {
    if (!signal.aborted && !problem.isFinal) isPatient = 2; // another tab took it
  }
  if (turn !== mine) return;
  leave();
  if (isPatient === 2) listen(true);
}

export function leave() {
  turn?.abort();
  turn = null;
}

async function keepTrying(step, signal) {
  const pacer = makePacer();
  const over = new Promise((resolve) => on(signal, "abort", resolve));
  let failures = 0;
  const noteAlive = () => {
    pacer.reset();
    failures = 0;
    setOffline(false);
    wake();
  };
  while (session && !signal.aborted) {
    let after;
    try {
      if (await step(signal, noteAlive, pacer)) return noteAlive();
    } catch (problem) {
      if (problem.isFinal) {
        explain(problem);
        throw problem;
      }
      after = problem.after;
    }
    if (signal.aborted) return;
    showDraft(false);
    failures += 1;
    if (failures > 1) setOffline(true); // a stream that ends and comes back at once is not worth a word
    await Promise.race([pacer.nap(after), over]);
  }
}

async function follow(signal, noteAlive, pacer) {
  const mine = (wire = openWire(pacer.isEager() ? EAGER_ANSWER : undefined));
  on(signal, "abort", mine.cut);
  try {
    const response = await request(`stream?after=${cursor}`, mine);
    if (cursor) hush(0); // what comes at once was missed
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ; ) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) return;
      mine.expect(SILENCE);
      noteAlive();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      const events = [];
      for (const block of blocks) {
        const found = /^event: (.*)\ndata: (.*)/ms.exec(block); // else a comment, which keeps the connection alive
        if (found) events.push([found[1], JSON.parse(found[2])]);
      }
      takeAll(events);
      tellTabs({ events });
      renewIfDue();
    }
  } finally {
    mine.close();
  }
}

function setOffline(isOffline) {
  setText(offline, isOffline ? texts.offline : "");
  if (isLeading() && isOffline) tellTabs({ events: [], isOffline });
}

// ---- The other tabs

export function tellTabs(what) {
  channel?.postMessage({ ...what, cursor, seen, of: session?.conversation });
}

function hearTab({ data }) {
  if (session && data.of !== session.conversation) return;
  if (data.isForgotten) beForgotten();
  else if (data.isHidden) {
    if (isInSight()) comeBack();
  } else if (!isLeading() && isShared()) {
    setOffline(data.isOffline);
    wake();
    takeAll(data.seen < Infinity ? [...data.events, ["seen", { seq: data.seen }]] : data.events);
    if (data.cursor > cursor) catchUp(data.cursor);
  }
}

// ---- Sleeping and coming back

function fallAsleep() {
  isAsleep = true;
  leave();
}

function comeBack() {
  isAsleep = false;
  if (isInLine && isInSight()) leave();
  else if (wire && Date.now() - wire.heardAt > SILENCE / 2) wire.cut();
  setTimeout(wake, 50); // once what was cut has ended
  listen();
  flush();
  acknowledge();
  showUnread();
}

export function watchPage() {
  if (channel) channel.onmessage = hearTab;
  on(window, "online", () => {
    cutWires(); // the network has changed under them
    comeBack();
  });
  on(window, "pageshow", comeBack);
  on(window, "pagehide", fallAsleep);
  let falling;
  on(document, "visibilitychange", () => {
    clearTimeout(falling);
    if (isInSight()) return comeBack();
    if (isLeading()) tellTabs({ isHidden: true });
    falling = setTimeout(fallAsleep, SLEEP_AFTER);
  });
  on(window, "storage", (event) => event.key === key("token") && event.newValue && adopt());
}

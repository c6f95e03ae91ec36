// The session: opened when there is something to say, followed by all tabs, renewed while it is used.
//
// Kept as {token, conversation, renew (ms), user}. `user` is who it was verified for, so that a page that identifies its
// visitor each time it loads makes no new session each time.

import { make, root, texts } from "./host.js";
import { startOver } from "./log.js";
import { explain } from "./problems.js";
import { clearQueue, flush, hasUnknown, showUnsent } from "./sending.js";
import { isShared, key, recall, remember } from "./storage.js";
import { leave, listen, tellTabs } from "./stream.js";
import { place } from "./view.js";
import { call, cutWires, makePacer, post, wake } from "./wire.js";

const RENEWED_AFTER = 86_400; // s, where the service names no time
const HOUR = 3_600_000;
const KEPT_WITHIN = 300; // ms

export let session = readSession();
let identity; // the last JWT the page has given
let opening;

function readSession() {
  try {
    const kept = JSON.parse(recall("token"));
    if (kept) return { ...kept, token: `${kept.token}` };
  } catch {
    // it is nothing of ours
  }
}

// Follows another tab.
export function adopt() {
  const other = readSession();
  if (other && other.token !== session?.token) take(other);
}

function take(other, isNew) {
  const isSame = other && session && other.conversation === session.conversation;
  session = other;
  if (!isSame) restart(isNew);
}

export function restart(isNew) {
  leave();
  startOver(isNew);
  showUnsent();
  wake();
  listen();
}

export async function haveSession() {
  if (!session) await (opening ??= alone(() => session ?? openSession("sessions")).finally(() => (opening = null)));
}

async function openSession(path) {
  const mine = identity;
  try {
    const body = {
      time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      language: root.host.lang,
      identity: mine,
    };
    keep(await post(path, body), mine && subjectOf(mine));
  } catch (problem) {
    if (problem.type === "identity-invalid" && identity === mine) identity = undefined; // it will not get better
    throw problem;
  }
}

function keep(told, user = session?.user) {
  const { token, conversation, rotate_after: life = RENEWED_AFTER } = { ...session, ...told };
  const kept = { token, conversation, user, renew: Date.now() + life * 1000 };
  remember("token", JSON.stringify(kept));
  remember("talked", "1");
  take(kept, told.seq === 0);
}

// One tab at a time, so that two do not open two conversations; the next one once it can read what this one has kept.
function alone(work) {
  return new Promise((resolve, reject) => {
    const turn = async () => {
      adopt();
      await Promise.resolve(work()).then(resolve, reject);
      return new Promise((next) => setTimeout(next, KEPT_WITHIN));
    };
    if (isShared()) navigator.locks.request(key("session"), turn);
    else turn();
  });
}

// ---- Who the visitor is

function subjectOf(jwt) {
  try {
    return JSON.parse(atob(jwt.split(".")[1].replace(/-/g, "+").replace(/_/g, "/"))).sub;
  } catch {
    // the service says what is wrong with it
  }
}

// Who writes here now, as far as it is known.
export const whoWrites = () => (session ? session.user : identity && subjectOf(identity));

// One whose session was lost takes whatever session another tab has.
export async function identify(jwt, isLost) {
  if (!jwt) return explain({ status: 403, type: "identity-invalid" });
  identity = jwt;
  const pacer = makePacer();
  for (let isDone; identity === jwt && !isDone; ) {
    let after;
    try {
      await alone(async () => {
        // What may have arrived already would arrive again in another conversation.
        if (identity !== jwt || hasUnknown()) return;
        const isKnown = isLost ? session : session?.user && session.user === subjectOf(jwt);
        if (!isKnown) await openSession(session ? "sessions/identify" : "sessions");
        isDone = true;
      });
    } catch (problem) {
      isDone = problem.isFinal;
      after = problem.after;
      explain(problem);
    }
    flush();
    if (!isDone) await pacer.nap(after);
  }
  listen();
}

// Signing out, on a computer that others use too.
export function forget() {
  tellTabs({ isForgotten: true });
  remember("token");
  beForgotten(true);
}

export function beForgotten(isHere) {
  cutWires(); // a session that is being opened now is for nobody
  if (isHere && session) call("sessions", "DELETE").catch(() => {});
  identity = undefined;
  clearQueue();
  // In each tab: another may not have seen yet what this one has written there.
  if (!recall("token")) {
    remember("unsent");
    remember("talked");
  }
  take();
}

// ---- Its end

export function loseSession({ token }) {
  adopt();
  if (session?.token !== token) return;
  remember("token");
  take();
  if (identity) identify(identity, true);
  else place(make("li", "remark", texts.lost), 0);
  flush();
}

export async function renewIfDue() {
  const due = session;
  if (due.renew > Date.now()) return;
  due.renew = Date.now() + HOUR; // until it is tried again
  await alone(async () => due === session && keep(await post("sessions/rotate"))).catch(() => {});
}

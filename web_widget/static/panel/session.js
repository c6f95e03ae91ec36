// The session: opened when there is something to say, followed by all tabs, renewed while it is used.
//
// Kept as {token, conversation, renew (ms), user}. `user` is who it was verified for, so that a page that identifies its
// visitor each time it loads makes no new session each time.

import { make, root, texts } from "./host.js";
import { startOver } from "./log.js";
import { explain } from "./problems.js";
import { clearQueue, flush, hasUnknown } from "./sending.js";
import { isShared, key, recall, remember } from "./storage.js";
import { leave, listen, tellTabs } from "./stream.js";
import { place } from "./view.js";
import { call, makePacer, post, wake } from "./wire.js";

const RENEWED_AFTER = 86_400; // s, where the service names no time
const HOUR = 3_600_000;

export let session = readSession();
let identity; // the last JWT the page has given
let opening;

function readSession() {
  const kept = recall("token");
  try {
    return kept && JSON.parse(kept);
  } catch {
    return { token: kept }; // as it was once kept
  }
}

// Follows another tab, or what this one has been given. Returns whether there was something to follow.
export function adopt(other = readSession()) {
  if (!other || other.token === session?.token) return false;
  take(other);
  return true;
}

function take(other) {
  const isSame = other && session && other.conversation === session.conversation;
  session = other;
  if (!isSame) restart();
}

export function restart() {
  leave();
  startOver();
  wake();
  listen();
}

export async function haveSession() {
  if (!session) await (opening ??= alone(() => adopt() || openSession("sessions")).finally(() => (opening = null)));
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

function keep({ token, conversation, rotate_after: life = RENEWED_AFTER }, user = session?.user) {
  const kept = { ...session, user };
  if (token) Object.assign(kept, { token, renew: Date.now() + life * 1000 });
  if (conversation) kept.conversation = conversation;
  remember("token", JSON.stringify(kept));
  remember("talked", "1");
  take(kept);
}

// One tab at a time, so that two do not open two conversations.
function alone(work) {
  return isShared() ? navigator.locks.request(key("session"), work) : Promise.resolve().then(work);
}

// ---- Who the visitor is

function subjectOf(jwt) {
  try {
    return JSON.parse(atob(jwt.split(".")[1].replace(/-/g, "+").replace(/_/g, "/"))).sub;
  } catch {
    // the service says what is wrong with it
  }
}

export async function identify(jwt) {
  identity = jwt;
  const pacer = makePacer();
  for (let isDone; identity === jwt && !isDone; ) {
    try {
      await alone(async () => {
        adopt();
        if (session?.user && session.user === subjectOf(jwt)) isDone = true;
        // What may have arrived already would arrive again in another conversation.
        else if (!hasUnknown() && identity === jwt) {
          await openSession(session ? "sessions/identify" : "sessions");
          isDone = true;
        }
      });
    } catch (problem) {
      isDone = problem.isFinal;
      explain(problem);
    }
    flush();
    if (!isDone) await pacer.nap();
  }
  listen();
}

// Signing out, on a computer that others use too.
export function forget() {
  if (session) call("sessions", "DELETE").catch(() => {});
  tellTabs({ isForgotten: true });
  for (const name of ["token", "unsent", "talked"]) remember(name);
  beForgotten();
}

export function beForgotten() {
  identity = undefined;
  clearQueue();
  take();
}

// ---- Its end

export function loseSession({ token }) {
  if (session?.token !== token || adopt()) return;
  remember("token");
  take();
  if (identity) haveSession().catch(explain);
  else place(make("li", "remark", texts.lost), 0);
  flush();
}

export async function renewIfDue() {
  if (session.renew > Date.now()) return;
  session.renew = Date.now() + HOUR; // until it is tried again
  await alone(async () => adopt() || keep(await post("sessions/rotate"))).catch(() => {});
}

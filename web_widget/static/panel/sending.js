// Sending: what the visitor writes is kept until the service has answered for it, and is sent again under the same id,
// which the service takes once.

import { makeBubble, markStates, setState } from "./bubbles.js";
import { say, texts } from "./host.js";
import { cursor, isLoaded, put } from "./log.js";
import { explain } from "./problems.js";
import { haveSession, session, whoWrites } from "./session.js";
import { recall, remember } from "./storage.js";
import { place, setText, showEnd, trouble } from "./view.js";
import { makePacer, post } from "./wire.js";

let queue = []; // what this page still has to send: {id, text, at, user, bubble}; `user` is who wrote it, where that was verified

// Other tabs write the same list, so it is read again before each change.
function changeUnsent(change) {
  const unsent = change(readUnsent());
  remember("unsent", unsent.length && JSON.stringify(unsent));
}

function readUnsent() {
  try {
    return JSON.parse(recall("unsent")).filter(({ at }) => Date.parse(at));
  } catch {
    return [];
  }
}

export function send(text) {
  // Pages without TLS have no randomUUID.
  const id = String(crypto.getRandomValues(new Uint32Array(4)));
  const message = { id, text, at: new Date().toISOString(), user: whoWrites() };
  changeUnsent((unsent) => [...unsent, message]);
  remember("talked", "1");
  say("sent");
  enqueue(message);
  showEnd();
  flush();
}

function enqueue(message) {
  const bubble = makeBubble({ role: "visitor", ...message });
  bubble.classList.add("unsent");
  bubble.at = null; // the log tells, as the visitor's clock may be wrong: until then no day begins with it
  queue.push({ ...message, bubble });
  showUnsent();
}

// What an earlier page could not send.
export function enqueueUnsent() {
  readUnsent().forEach(enqueue);
}

// Another user's words are neither sent nor shown; they wait until that user is back.
const isOurs = ({ user }) => !user || user === whoWrites();

export function showUnsent() {
  for (const message of queue) {
    const { bubble } = message;
    if (bubble.seq) continue;
    if (session?.user && !isOurs(message)) bubble.remove();
    else place(bubble);
    if (!isOurs(message)) setState(bubble, texts.kept);
  }
}

export function clearQueue() {
  for (const { bubble } of queue) bubble.remove();
  queue = [];
}

// Whether something may have arrived of which no answer came.
export function hasUnknown() {
  return queue.some((message) => message.isUnknown && isOurs(message));
}

let isFlushing = false;

export async function flush() {
  if (isFlushing) return;
  isFlushing = true;
  const pacer = makePacer();
  for (let message; (message = queue.find(isOurs)); ) {
    try {
      await haveSession();
      if (!isOurs(message)) continue;
      message.isUnknown = true;
      const { seq } = await post("messages", { text: message.text, client_id: message.id });
      if (!(seq > 0)) throw new Error(); // no answer of the service
      settle(message, seq);
      setText(trouble, "");
      pacer.reset();
    } catch (problem) {
      const { status, isFinal } = problem;
      if (status < 500) message.isUnknown = false;
      // What is wrong with the message itself no other moment would change.
      if ([400, 413, 422].includes(status)) {
        refuse(message);
        continue;
      }
      if (isFinal || status === 429) explain(problem);
      for (const each of queue) {
        if (each.bubble.seq) continue; // the log has it: it has arrived
        setState(each.bubble, isFinal || !isOurs(each) ? texts.kept : texts.unsent);
      }
      if (isFinal) break; // until the page identifies its visitor, or the visitor writes again
      await pacer.nap(problem.after);
    }
  }
  isFlushing = false;
}

function settle(message, seq) {
  dequeue(message);
  const { bubble } = message;
  setSent(bubble);
  if (!bubble.seq) {
    // What was said before the first message shown would stand there without all that came between: the history brings it.
    if (isLoaded && seq > cursor) put(bubble, seq);
    else bubble.remove();
  }
  markStates();
}

function refuse(message) {
  dequeue(message);
  const { bubble } = message;
  bubble.classList.add("refused");
  setState(bubble, texts.refused);
  setText(trouble, texts.refused);
  bubble.seq ??= cursor + 0.5; // it keeps its place: what is said later comes after it
}

function dequeue(message) {
  queue = queue.filter((each) => each !== message);
  changeUnsent((unsent) => unsent.filter(({ id }) => id !== message.id));
}

function setSent(bubble) {
  bubble.classList.remove("unsent");
  setState(bubble, "");
}

// Returns the bubble of a message of ours that the log holds before the answer has come.
export function takeOwn(id) {
  const own = queue.find((each) => id === each.id && !each.bubble.seq)?.bubble;
  if (own) setSent(own);
  return own;
}

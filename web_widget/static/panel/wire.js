// Talking with the service, over connections that can be cut: when they stay silent too long, or when the network has
// changed under them.

import { base } from "./host.js";
import { loseSession, session } from "./session.js";

const ANSWER_WITHIN = 10_000;
const EAGER_FOR = 10_000;
const EAGER_PAUSE = 1_300;
const LONGEST_PAUSE = 30_000;

const wires = new Set();

export function openWire(within = ANSWER_WITHIN) {
  const controller = new AbortController();
  let timer;
  const wire = {
    signal: controller.signal,
    cut: () => controller.abort(),
    expect(within) {
      wire.heardAt = Date.now();
      clearTimeout(timer);
      timer = setTimeout(wire.cut, within);
    },
    close() {
      clearTimeout(timer);
      wires.delete(wire);
      wire.cut();
    },
  };
  wire.expect(within);
  wires.add(wire);
  return wire;
}

// Throws `status`, `type` and `after` (ms) where the service refuses; `isFinal` where asking again is useless.
export async function request(path, { signal }, method, body) {
  const mine = session;
  const response = await fetch(base + path, {
    method,
    headers: mine && { Authorization: `Bearer ${escape(mine.token)}` },
    body: body && JSON.stringify(body),
    signal,
    keepalive: method === "DELETE", // a page may be left as its visitor signs out
    credentials: "omit",
  });
  const { status, ok, headers } = response;
  if (ok) return response;
  const { type } = await response.json().catch(() => ({}));
  const isOfIdentity = /^identity/.test(type);
  if (status === 401 && mine && !isOfIdentity) loseSession(mine);
  const isFinal = isOfIdentity || (status < 500 && ![401, 408, 425, 429].includes(status));
  throw { status, type, isFinal, after: headers.get("Retry-After") * 1000 };
}

export async function call(path, method, body) {
  const mine = session;
  const wire = openWire();
  try {
    const response = await request(path, wire, method, body);
    const answer = response.status !== 204 && (await response.json());
    if (mine?.conversation !== session?.conversation) throw new Error(); // the conversation is another by now
    return answer;
  } finally {
    wire.close();
  }
}

export function post(path, body = {}) {
  return call(path, "POST", body);
}

// ---- Pauses between attempts

const naps = new Set();

// Short pauses for ten seconds, in which most cuts end, then longer and longer ones; what the service asks for is kept.
export function makePacer() {
  let since = 0;
  let pause;
  return {
    isEager: () => Date.now() - since < EAGER_FOR,
    reset: () => (since = 0),
    nap(after) {
      since ||= Date.now();
      pause = Date.now() - since < EAGER_FOR ? EAGER_PAUSE : Math.min(pause * 2, LONGEST_PAUSE);
      return new Promise((resolve) => {
        const end = () => {
          naps.delete(end);
          resolve();
        };
        setTimeout(end, Math.max(pause * (0.2 + 0.8 * Math.random()), after || 0));
        if (!after) naps.add(end);
      });
    },
  };
}

export function wake() {
  for (const end of [...naps]) end();
}

export function cutWires() {
  for (const wire of [...wires]) wire.cut();
}

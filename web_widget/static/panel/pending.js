// What is booked in this conversation: when it comes, in the visitor's own time, and taking it back.

import { make, makeButton, texts } from "./host.js";
import { session } from "./session.js";
import { nameMoment } from "./times.js";
import { log, offline, pending, pendingButton, setText, showEnd } from "./view.js";
import { call } from "./wire.js";

export function buildPending() {
  pending.role = "region";
  pendingButton.onclick = () => showPending(pending.hidden);
}

export function showPending(isWanted) {
  pending.hidden = !isWanted;
  log.hidden = isWanted;
  pendingButton.ariaExpanded = isWanted;
  pending.replaceChildren();
  if (isWanted) refreshPending();
  else showEnd();
}

export async function refreshPending() {
  if (pending.hidden) return;
  let row;
  try {
    const rows = session ? (await call("pending")).pending.map(makeRow) : [];
    row = rows.length ? make("ul", "", ...rows) : texts.nothing;
  } catch {
    row = texts.offline; // asked again with the next message
  }
  pending.replaceChildren(make("h3", "", texts.pending), row);
}

function makeRow({ id, about, at }) {
  const time = make("time", "", nameMoment(new Date(at)));
  const words = make("div", "", about, time);
  const cancel = makeButton("cancel", texts.cancel);
  words.dir = "auto";
  time.dateTime = at;
  cancel.ariaLabel = `${texts.cancel}: ${about}`;
  cancel.onclick = async () => {
    cancel.disabled = true;
    const told = await call(`pending/${id}`, "DELETE").then(
      ({ status }) => texts[status],
      ({ status }) => (status === 404 ? texts.raced : texts.offline),
    );
    await refreshPending();
    setText(offline, told); // until the stream says that all is well
    pendingButton.focus(); // the button that had it is gone
  };
  return make("li", "", words, cancel);
}

// The conversation in a frame of the service's own origin (data-isolate), where scripts of the page cannot read it. The
// launcher stays in the page. Both ends talk through one port, which is handed to the frame's origin alone.

import PAGE from "../texts/*.json#page";
import { base, config, host, make, note, options, panel, root, say, setTexts, texts } from "./host.js";
import { dress } from "./look.js";
import { tellUnread } from "./notices.js";
import { setOpen } from "./opening.js";
import { recall, remember } from "./storage.js";

const ANSWERS_WITHIN = 15_000; // ms
const TOLD_AFTER = 200;

let frame;
let isHere; // the frame has answered: before, nothing is put over the page
let wanted; // [whether it takes the focus], once it is here
let port;
const told = []; // of who the visitor is: again where a frame did not come

function obey(name, value) {
  if (name === "close" && !frame) return;
  if (!frame) embed();
  if (!isHere && ["open", "close"].includes(name)) {
    wanted = name === "open" && [value];
    note.textContent = "";
    return;
  }
  if (name === "open") open(true, value);
  if (name === "close") open(false);
  if (name === "forget") remember("talked");
  if (["identify", "forget"].includes(name)) told.push([name, value]);
  port.postMessage([name, value]);
}

function open(isWanted, isFocused) {
  setOpen(isWanted, isFocused, frame);
  tellUnread(host.unread);
}

function embed() {
  const { port1, port2 } = new MessageChannel();
  port = port1;
  frame = make("iframe");
  frame.title = config.title;
  frame.style.cssText = "flex:1;border:0";
  frame.src = `${base.slice(0, -1)}#framed`;
  const handOver = () => frame.contentWindow.postMessage("vuelvo", new URL(base).origin, [port2]);
  frame.addEventListener("load", handOver, { once: true });
  setTimeout(() => {
    if (wanted && !isHere) note.textContent = "…";
  }, TOLD_AFTER);
  const givingUp = setTimeout(() => {
    if (wanted) note.textContent = texts.failed;
    frame.remove();
    frame = wanted = null;
  }, ANSWERS_WITHIN);
  port.onmessage = ({ data: [name, detail, talked] }) => {
    clearTimeout(givingUp);
    if (!isHere) {
      isHere = true;
      note.textContent = "";
      if (wanted) obey("open", ...wanted);
    }
    if (talked) remember("talked", talked);
    if (name === "close") {
      open(false);
      if (host.isOpen) port.postMessage(["open", true]); // it fills the page
    }
    if (name === "unread") tellUnread(detail.count);
    if (["message", "refused", "sent"].includes(name)) say(name, detail);
  };
  const style = getComputedStyle(root.host);
  port.postMessage([
    "look",
    {
      dir: style.direction,
      font: style.getPropertyValue("--vuelvo-font"),
      scheme: options.theme ?? "",
      hasSound: "sound" in options,
    },
  ]);
  port.postMessage(["language", root.host.lang]);
  for (const order of told) port.postMessage(order);
  panel.append(frame);
}

function retell() {
  const { lang } = root.host;
  setTexts(PAGE[lang]);
  tellUnread(host.unread);
  port?.postMessage(["language", lang]);
}

if (host.retell) {
  host.retell();
} else {
  const { waiting } = host;
  host.retell = retell;
  host.tell = obey;
  host.waiting = null;
  dress();
  panel.role = "dialog";
  panel.ariaLabel = config.title;
  retell();
  for (const what of waiting) obey(...what);
  if (recall("talked") && !frame) embed();
}

// The panel: one conversation that survives reloads, cuts and closed tabs. What it shows comes from the conversation's log
// alone.

import PAGE from "../texts/LANGUAGE.json#page";
import TEXTS from "../texts/LANGUAGE.json#panel";
import { makeBubble } from "./bubbles.js";
import { config, host, isFixed, isFramed, isFull, make, on, panel, root, setTexts, texts } from "./host.js";
import { acknowledge, loadOlder, noteSeen, showUnread } from "./log.js";
import { dress } from "./look.js";
import { setOpen } from "./opening.js";
import { obeyParent } from "./parent.js";
import { buildPending, showPending } from "./pending.js";
import { enqueueUnsent, flush, send } from "./sending.js";
import { forget, identify, restart } from "./session.js";
import { watchTouch } from "./sound.js";
import { watchPage } from "./stream.js";
import { closeButton, form, heading, input, list, log, offline, pending, pendingButton } from "./view.js";
import { place, submit, trouble, typing } from "./view.js";

const LONGEST_TEXT = 4_000;

function obey(name, value) {
  ({ open: openPanel, close: closePanel, identify, forget })[name](value);
}

function openPanel(isFocused) {
  setOpen(true, isFocused, input);
  showPending(false);
  fitInput();
  acknowledge();
  showUnread();
}

function closePanel() {
  noteSeen();
  setOpen(false);
  showUnread();
}

// All that is said in the visitor's language.
function tellAll(given) {
  setTexts(given);
  log.ariaLabel = texts.conversation;
  pendingButton.ariaLabel = pending.ariaLabel = texts.pending;
  closeButton.ariaLabel = texts.close;
  submit.ariaLabel = texts.send;
  input.ariaLabel = input.placeholder = texts.write;
  typing.firstChild.textContent = texts.typing;
  list.firstChild?.remove();
  const own = root.host.lang === config.languages[0] && config.greeting; // in the tenant's first language
  place(makeBubble({ role: "assistant", text: own || texts.greeting }), -1);
  restart();
}

function fitInput() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight + 2}px`;
}

function submitInput() {
  const text = input.value.replaceAll("\0", "").trim();
  if (!text) return;
  input.value = "";
  fitInput();
  showPending(false);
  send(text);
}

function answerEvents() {
  closeButton.onclick = closePanel;
  watchTouch();
  panel.onkeydown = (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    if (pending.hidden) return closePanel();
    showPending(false);
    pendingButton.focus();
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    submitInput();
    input.focus();
  };
  input.oninput = fitInput;
  input.onkeydown = (event) => {
    // While a word is being composed (Chinese, Japanese…), Enter chooses it; Safari tells by 229 only.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    submitInput();
  };
  log.onscroll = () => {
    if (log.scrollTop < 80) loadOlder().catch(() => {}); // the next scroll asks again
  };
  // What the visitor types here is not for the page's own shortcuts.
  on(root, "keydown keyup keypress", (event) => event.stopPropagation());
}

function build() {
  heading.append(config.title);
  closeButton.hidden = isFixed;
  panel.role = isFull ? "main" : "dialog";
  panel.ariaLabel = config.title;
  panel.append(make("header", "", heading, pendingButton, closeButton), pending, log, typing, trouble, offline, form);
  pending.hidden = true;
  pendingButton.ariaExpanded = false;
  log.role = "log";
  log.tabIndex = 0;
  trouble.role = offline.role = "status";
  Object.assign(input, { rows: 1, maxLength: LONGEST_TEXT, enterKeyHint: "send" });
  submit.type = "submit";
}

function start(given) {
  const { waiting } = host;
  host.waiting = null;
  host.retell = tellAll;
  host.tell = obey;
  dress();
  build();
  buildPending();
  answerEvents();
  watchPage();
  tellAll(given);
  enqueueUnsent();
  flush();
  if (isFramed) obeyParent(obey);
  else for (const what of waiting) obey(...what);
}

// The panel of another language brings its texts to the one that is there.
(host.retell ?? start)({ ...PAGE, ...TEXTS });

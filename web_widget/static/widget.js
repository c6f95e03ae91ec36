// The widget: a launcher, a panel, and one conversation that survives reloads, cuts and closed tabs.
//
// Served with a line before it that sets `config`: tenant, title, greeting, language, color, ink.
//
//   <script src="https://HOST/widget/TENANT.js" defer></script>
//
// data-open opens the panel at once, data-full fills the page with it, data-language="es" chooses the language.
//
// What is shown comes from the conversation's log alone, by sequence number: `cursor` is the last one read, and reading
// goes on from there after any interruption. What the visitor writes is kept until the service has answered for it, and
// is sent again under the same id, which the service takes once.
(() => {
  "use strict";

  if (window.vuelvo?.open) return; // the page includes the script twice

  const script =
    document.currentScript ?? document.querySelector(`script[src*="/${encodeURIComponent(config.tenant)}.js"]`);
  if (!script) {
    console.warn("Vuelvo: the widget must be loaded by a script tag of its own.");
    return;
  }
  const base = script.src.replace(/\.js([?#].*)?$/, "");

  const TEXTS = {
    en: {
      open: "Open chat",
      close: "Close chat",
      unread: (count) => (count === 1 ? "1 unread message" : `${count} unread messages`),
      conversation: "Conversation",
      greeting: "Hello! How can I help you?",
      write: "Write a message",
      send: "Send",
      you: "You",
      assistant: "Assistant",
      typing: "Writing…",
      followup: "Back, as promised",
      notice: "Notice",
      unsent: "Not sent yet, trying again…",
      refused: "This message could not be sent.",
      failed: "Something went wrong here. Please try again later.",
      offline: "No connection, trying again…",
      lost: "The earlier conversation is no longer available. This is a new one.",
    },
    es: {
      open: "Abrir el chat",
      close: "Cerrar el chat",
      unread: (count) => (count === 1 ? "1 mensaje sin leer" : `${count} mensajes sin leer`),
      conversation: "Conversación",
      greeting: "¡Hola! ¿En qué puedo ayudar?",
      write: "Escriba un mensaje",
      send: "Enviar",
      you: "Usted",
      assistant: "Asistente",
      typing: "Escribiendo…",
      followup: "Vuelvo, como quedamos",
      notice: "Aviso",
      unsent: "Aún no se envió, reintentando…",
      refused: "No se pudo enviar este mensaje.",
      failed: "Algo falló aquí. Inténtelo más tarde, por favor.",
      offline: "Sin conexión, reintentando…",
      lost: "La conversación anterior ya no está disponible. Esta es una nueva.",
    },
    pt: {
      open: "Abrir o chat",
      close: "Fechar o chat",
      unread: (count) => (count === 1 ? "1 mensagem não lida" : `${count} mensagens não lidas`),
      conversation: "Conversa",
      greeting: "Olá! Como posso ajudar?",
      write: "Escreva uma mensagem",
      send: "Enviar",
      you: "Você",
      assistant: "Assistente",
      typing: "Escrevendo…",
      followup: "Voltei, como combinado",
      notice: "Aviso",
      unsent: "Ainda não enviada, tentando de novo…",
      refused: "Não foi possível enviar esta mensagem.",
      failed: "Algo deu errado aqui. Tente mais tarde, por favor.",
      offline: "Sem conexão, tentando de novo…",
      lost: "A conversa anterior não está mais disponível. Esta é uma nova.",
    },
  };

  const language =
    [script.dataset.language, ...navigator.languages, config.language]
      .map((tag) => (tag ?? "").slice(0, 2).toLowerCase())
      .find((tag) => Object.hasOwn(TEXTS, tag)) ?? "en";
  const texts = TEXTS[language];
  const locale = navigator.languages.find((tag) => tag.slice(0, 2).toLowerCase() === language) ?? language;
  const isFull = script.hasAttribute("data-full");

  const FIRST_PAUSE = 500;
  const LONGEST_PAUSE = 30_000;
  const ANSWER_WITHIN = 10_000;
  const SILENCE = 25_000; // the service breaks its silence every 10 s
  const SLEEP_AFTER = 60_000; // a page out of sight gives its connection back
  const LONGEST_TEXT = 4_000;

  // ---- What is remembered: in the browser's storage, or in memory where that is blocked

  const memory = new Map();
  const key = (name) => `vuelvo:${config.tenant}:${name}`;

  function recall(name) {
    try {
      return localStorage.getItem(key(name)) ?? memory.get(name) ?? null;
    } catch {
      return memory.get(name) ?? null;
    }
  }

  function remember(name, value) {
    memory.delete(name);
    try {
      if (value === null) localStorage.removeItem(key(name));
      else localStorage.setItem(key(name), value);
    } catch {
      if (value !== null) memory.set(name, value);
    }
  }

  // Other tabs write the same list, so it is read again before each change.
  function changeUnsent(change) {
    remember("unsent", JSON.stringify(change(readUnsent())));
  }

  function readUnsent() {
    try {
      const kept = JSON.parse(recall("unsent") ?? "[]");
      return Array.isArray(kept) ? kept.filter((each) => each?.id && typeof each.text === "string") : [];
    } catch {
      return [];
    }
  }

  // ---- The state

  let token = recall("token");
  let cursor = 0; // the last message read
  let first = 1; // the first message shown; what is before it is fetched when the visitor scrolls up
  let seen = Infinity; // the last message the visitor has seen; unknown until the service tells
  let isLoaded = false;
  let isOpen = false;
  let isAsleep = false;
  const shown = new Map(); // sequence number -> bubble
  const queue = []; // what this page still has to send: {id, text, at, bubble}

  // ---- Talking with the service

  class Refused extends Error {
    constructor(status) {
      super(`refused with ${status}`);
      this.status = status;
      this.isFinal = status >= 400 && status < 500 && ![401, 408, 425, 429].includes(status);
    }
  }

  // A connection that can be cut: when it stays silent too long, or when the network has changed under it.
  const wires = new Set();

  function openWire() {
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
        controller.abort();
      },
    };
    wire.expect(ANSWER_WITHIN);
    wires.add(wire);
    return wire;
  }

  async function request(path, wire, { method = "GET", body, headers } = {}) {
    const mine = token;
    const response = await fetch(`${base}/${path}`, {
      method,
      headers: {
        ...(mine && { Authorization: `Bearer ${mine}` }),
        ...(body && { "Content-Type": "application/json" }),
        ...headers,
      },
      body: body && JSON.stringify(body),
      signal: wire.signal,
      credentials: "omit",
      cache: "no-store",
    });
    if (response.status === 401 && mine) loseSession(mine);
    if (!response.ok) throw new Refused(response.status);
    return response;
  }

  async function call(path, options) {
    const mine = token;
    const wire = openWire();
    try {
      const response = await request(path, wire, options);
      const answer = response.status === 204 ? null : await response.json();
      if (mine !== token) throw new Error("the conversation has changed meanwhile");
      return answer;
    } finally {
      wire.close();
    }
  }

  const naps = new Set();

  function nap(pause) {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        naps.delete(end);
        resolve();
      };
      const timer = setTimeout(end, pause * (0.5 + Math.random()));
      naps.add(end);
    });
  }

  function wake() {
    for (const end of [...naps]) end();
  }

  function cutWires() {
    for (const wire of [...wires]) wire.cut();
    setTimeout(wake, 50); // once what was cut has ended
  }

  // ---- The session: opened when there is something to say

  let opening = null;

  function haveSession() {
    if (token) return Promise.resolve();
    opening ??= openSession().finally(() => (opening = null));
    return opening;
  }

  function openSession() {
    const open = async () => {
      const ofAnotherTab = recall("token");
      if (ofAnotherTab) return adopt(ofAnotherTab);
      const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
      const opened = await call("sessions", { method: "POST", body: { time_zone: zone, language } });
      remember("token", opened.token);
      return adopt(opened.token);
    };
    // One tab at a time, so that two do not open two conversations. Insecure pages have no locks, and where storage is
    // blocked no tab knows of another.
    return navigator.locks && !memory.size ? navigator.locks.request(key("session"), open) : open();
  }

  function adopt(other) {
    token = other;
    startOver();
    cutWires();
    listen();
  }

  function loseSession(lost) {
    if (token !== lost) return;
    const other = recall("token");
    if (other && other !== lost) return adopt(other);
    token = null;
    remember("token", null);
    startOver();
    showNote(texts.lost);
    flush();
  }

  function startOver() {
    cursor = 0;
    first = 1;
    seen = Infinity;
    isLoaded = false;
    for (const item of [...list.children]) if (item.seq > 0) item.remove();
    shown.clear();
    showTyping(false);
    showUnread();
  }

  // ---- Sending

  function send(text) {
    const message = { id: newId(), text, at: new Date().toISOString() };
    changeUnsent((unsent) => [...unsent, message]);
    enqueue(message);
    flush();
  }

  function enqueue({ id, text, at }) {
    const bubble = makeBubble({ role: "visitor", kind: "message", text, at });
    bubble.classList.add("unsent");
    append(bubble);
    queue.push({ id, text, at, bubble });
  }

  let isFlushing = false;

  async function flush() {
    if (isFlushing) return;
    isFlushing = true;
    let pause = FIRST_PAUSE;
    while (queue.length) {
      const message = queue[0];
      try {
        await haveSession();
        const body = { text: message.text, client_id: message.id };
        const { seq } = await call("messages", { method: "POST", body });
        if (!Number.isInteger(seq)) throw new Error("not an answer of the service");
        settle(message, seq);
        pause = FIRST_PAUSE;
      } catch (problem) {
        if (problem instanceof Refused && problem.isFinal) {
          refuse(message);
          continue;
        }
        if (problem.status === 401 && pause === FIRST_PAUSE) {
          pause *= 2; // at once in a new session, but not for ever
          continue;
        }
        for (const { bubble } of queue) if (bubble.seq === undefined) setState(bubble, texts.unsent);
        await nap(pause);
        pause = Math.min(pause * 2, LONGEST_PAUSE);
      }
    }
    isFlushing = false;
  }

  function settle(message, seq) {
    dequeue(message);
    setSent(message.bubble);
    if (message.bubble.seq !== undefined) return; // the stream brought it before the answer came
    if (shown.has(seq)) message.bubble.remove();
    else place(message.bubble, seq);
  }

  function refuse(message) {
    dequeue(message);
    message.bubble.classList.add("refused");
    setState(message.bubble, texts.refused);
    message.bubble.seq ??= cursor + 0.5; // it keeps its place: what is said later comes after it
    showNote(texts.failed, cursor + 0.5);
  }

  function dequeue(message) {
    queue.splice(queue.indexOf(message), 1);
    changeUnsent((unsent) => unsent.filter((each) => each.id !== message.id));
  }

  function newId() {
    // Pages without TLS have no randomUUID.
    if (crypto.randomUUID) return crypto.randomUUID();
    return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  // ---- Reading: the end of the log first, then the stream from there

  let isListening = false;
  let stream = null;

  async function listen() {
    if (isListening) return;
    isListening = true;
    let pause = FIRST_PAUSE;
    let failures = 0;
    while (token && !isAsleep) {
      try {
        if (!isLoaded) await loadEnd();
        await follow(() => {
          pause = FIRST_PAUSE;
          failures = 0;
          showOffline(false);
          wake();
        });
      } catch (problem) {
        if (problem instanceof Refused && problem.isFinal) break;
      }
      showTyping(false);
      if (!token || isAsleep) break;
      failures += 1;
      if (failures > 1) showOffline(true); // a stream that ends and comes back at once is not worth a word
      await nap(pause);
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
    showOffline(false);
    isListening = false;
  }

  async function loadEnd() {
    const { messages } = await call("messages?limit=50");
    log.ariaBusy = "true"; // history is not read aloud
    for (const message of messages) show(message);
    log.ariaBusy = "false";
    first = messages[0]?.seq ?? 1;
    cursor = messages.at(-1)?.seq ?? 0;
    isLoaded = true;
    log.scrollTop = log.scrollHeight;
  }

  let isFetchingOlder = false;

  async function loadOlder() {
    if (isFetchingOlder || first <= 1) return;
    isFetchingOlder = true;
    try {
      const { messages } = await call(`messages?before=${first}&limit=50`);
      const fromEnd = log.scrollHeight - log.scrollTop;
      log.ariaBusy = "true";
      for (const message of messages) show(message);
      log.ariaBusy = "false";
      first = messages[0]?.seq ?? 1;
      log.scrollTop = log.scrollHeight - fromEnd;
    } catch {
      // the next scroll asks again
    } finally {
      isFetchingOlder = false;
    }
  }

  async function follow(onAlive) {
    const mine = token;
    const wire = openWire();
    stream = wire;
    try {
      const headers = { Accept: "text/event-stream", "Last-Event-ID": String(cursor) };
      const response = await request(`stream?after=${cursor}`, wire, { headers });
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done || mine !== token) return;
        wire.expect(SILENCE);
        onAlive();
        const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
        rest = events.pop();
        for (const event of events) hear(event);
      }
    } finally {
      wire.close();
    }
  }

  function hear(event) {
    const name = /^event: (.*)$/m.exec(event)?.[1];
    if (!name) return; // a comment that keeps the connection alive
    const content = JSON.parse(/^data: (.*)$/m.exec(event)[1]);
    if (name === "message") {
      cursor = Math.max(cursor, content.seq);
      show(content, true);
      if (content.role === "assistant") showTyping(false);
    } else if (name === "typing") {
      showTyping(content.typing);
    } else if (name === "seen") {
      seen = seen === Infinity ? content.seq : Math.max(seen, content.seq);
    }
    if (name !== "typing") {
      showUnread();
      acknowledge();
    }
  }

  let isAcknowledging = false;

  async function acknowledge() {
    if (isAcknowledging || !isOpen || document.visibilityState !== "visible" || cursor <= seen) return;
    isAcknowledging = true;
    const upTo = cursor;
    let isDone = false;
    try {
      await call("seen", { method: "POST", body: { seq: upTo } });
      seen = Math.max(seen, upTo);
      showUnread();
      isDone = true;
    } catch {
      // said again with the next message, or when the stream is back
    } finally {
      isAcknowledging = false;
    }
    if (isDone) acknowledge();
  }

  // ---- Showing

  const SVG = "http://www.w3.org/2000/svg";

  function make(tag, className, ...children) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    element.append(...children);
    return element;
  }

  function makeIcon(path) {
    const icon = document.createElementNS(SVG, "svg");
    const line = document.createElementNS(SVG, "path");
    icon.setAttribute("viewBox", "0 0 24 24");
    icon.setAttribute("aria-hidden", "true");
    line.setAttribute("d", path);
    icon.append(line);
    return icon;
  }

  function makeButton(className, name, path) {
    const button = make("button", className, makeIcon(path));
    button.type = "button";
    button.ariaLabel = name;
    return button;
  }

  function makeBubble({ role, kind, text, at }) {
    const item = make("li", role);
    const label = texts[kind === "followup" || kind === "notice" ? kind : ""];
    if (label) item.append(make("span", "label", label));
    const words = make("div", "words", make("span", "unseen", `${role === "visitor" ? texts.you : texts.assistant}: `));
    words.dir = "auto";
    if (role === "assistant") words.append(render(text));
    else words.append(text);
    const time = make("time", "", tellTime(at));
    time.dateTime = at;
    item.append(words, make("span", "foot", time, make("span", "state")));
    return item;
  }

  // In the visitor's own time zone.
  function tellTime(at) {
    const time = new Date(at);
    const isToday = time.toDateString() === new Date().toDateString();
    const day = isToday ? {} : { day: "numeric", month: "short" };
    return new Intl.DateTimeFormat(locale, { ...day, hour: "numeric", minute: "2-digit" }).format(time);
  }

  function show(message, isLive = false) {
    if (shown.has(message.seq)) return;
    if (isLive && message.role === "visitor") {
      const own = queue.find(({ text, bubble }) => bubble.seq === undefined && text === message.text);
      if (own) {
        setSent(own.bubble);
        place(own.bubble, message.seq);
        return;
      }
    }
    place(makeBubble(message), message.seq);
  }

  // Into the order of the log. What has no number yet stays at the end.
  function place(item, seq) {
    item.seq = seq;
    if (seq > 0 && Number.isInteger(seq)) shown.set(seq, item);
    let next = null;
    for (let other = list.lastElementChild; other; other = other.previousElementSibling) {
      if (other === item) continue;
      if (other.seq <= seq) break;
      next = other;
    }
    if (item.isConnected && item.nextElementSibling === next) return;
    keepEndInView(() => list.insertBefore(item, next));
  }

  function append(item) {
    list.append(item);
    log.scrollTop = log.scrollHeight;
  }

  function keepEndInView(change) {
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 48;
    change();
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }

  function showNote(text, seq = 0) {
    place(make("li", "note", text), seq);
  }

  function setState(bubble, text) {
    keepEndInView(() => (bubble.querySelector(".state").textContent = text));
  }

  function setSent(bubble) {
    bubble.classList.remove("unsent");
    setState(bubble, "");
  }

  function showTyping(isOn) {
    keepEndInView(() => (typing.hidden = !isOn));
  }

  function showOffline(isOn) {
    keepEndInView(() => (offline.textContent = isOn ? texts.offline : ""));
  }

  function showUnread() {
    let count = 0;
    if (!isOpen) for (const [seq, bubble] of shown) if (seq > seen && bubble.className === "assistant") count += 1;
    const told = count ? texts.unread(count) : "";
    badge.hidden = !count;
    badge.textContent = count > 9 ? "9+" : count;
    launcher.ariaLabel = (isOpen ? texts.close : texts.open) + (told && `, ${told}`);
    if (news.textContent !== told) news.textContent = told;
  }

  // A small part of Markdown, made of text nodes only: paragraphs, lists, bold, italics, code, links.
  function render(text) {
    const parts = document.createDocumentFragment();
    for (const [index, part] of text.split(/^```.*\n([^]*?)\n?^```[ \t]*$\n?/m).entries()) {
      if (index % 2) parts.append(make("pre", "", make("code", "", part)));
      else if (part.trim()) renderBlocks(part.replace(/^\n+|\s+$/g, ""), parts);
    }
    return parts;
  }

  function renderBlocks(text, parts) {
    let block = null;
    for (const line of text.split("\n")) {
      const [, bullet, number, entry] = /^\s*(?:([-*•])|(\d{1,9})[.)])\s+(.*)$/.exec(line) ?? [];
      const kind = bullet ? "UL" : number ? "OL" : "P";
      if (!line.trim()) {
        block = null;
        continue;
      }
      if (block?.tagName !== kind) {
        block = make(kind);
        if (number) block.start = Number(number);
        parts.append(block);
      } else if (kind === "P") {
        block.append(make("br"));
      }
      if (kind === "P") block.append(...renderLine(line.replace(/^#{1,6}\s+/, "")));
      else block.append(make("li", "", ...renderLine(entry)));
    }
  }

  const MARKS = new RegExp(
    [
      "`(?<code>[^`]{1,1000})`",
      "\\*\\*(?<bold>[^\\s*](?:.{0,1000}?\\S)?)\\*\\*",
      "(?<![\\w*])(?<mark>[*_])(?<italic>[^\\s*_](?:[^*_]{0,1000}[^\\s*_])?)\\k<mark>(?![\\w*])",
      "\\[(?<label>[^\\]]{1,500})\\]\\((?<target>[^\\s()]{1,2000}(?:\\([^\\s()]{0,500}\\)[^\\s()]{0,500})?)\\)",
      "(?<url>https?://[^\\s<>\"]{1,2000})",
    ].join("|"),
    "u",
  );

  function renderLine(text) {
    const nodes = [];
    for (let found; (found = MARKS.exec(text)); ) {
      const { code, bold, italic, label, target, url } = found.groups;
      let end = found.index + found[0].length;
      nodes.push(text.slice(0, found.index));
      if (code) nodes.push(make("code", "", code));
      else if (bold) nodes.push(make("strong", "", ...renderLine(bold)));
      else if (italic) nodes.push(make("em", "", ...renderLine(italic)));
      else if (label) nodes.push(...renderLink(label, target, found[0]));
      else {
        // What ends the sentence does not belong to the address.
        const address = url.replace(url.includes("(") ? /[.,;:!?'*_]+$/ : /[.,;:!?'*_)\]]+$/, "");
        end -= url.length - address.length;
        nodes.push(...renderLink(address, address, address));
      }
      text = text.slice(end);
    }
    nodes.push(text);
    return nodes;
  }

  // Where a link leads can always be read; what cannot be trusted stays text.
  function renderLink(label, target, source) {
    let url;
    try {
      url = new URL(target);
    } catch {
      return [source];
    }
    if (!["http:", "https:", "mailto:"].includes(url.protocol) || url.username || url.password) return [source];
    const link = make("a", "", label);
    link.href = url.href;
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
    const place = url.protocol === "mailto:" ? url.pathname : url.host;
    const isTold = url.protocol === "mailto:" ? label === place : label === target;
    return isTold && target.toLowerCase().includes(place) ? [link] : [link, ` (${place})`];
  }

  // ---- The page

  const STYLE = `
    :host { all: initial !important; display: block !important; color-scheme: light dark !important;
      --accent: ${config.color}; --ink: ${config.ink}; --paper: #fff; --text: #1b1d22; --soft: #eef0f4;
      --quiet: #565d6b; --line: #d3d7df; --alarm: #a11a1a; }
    @media (prefers-color-scheme: dark) { :host { --paper: #1b1e25; --text: #eceef2; --soft: #2b303a;
      --quiet: #adb4c1; --line: #414855; --alarm: #ffb4ab; } }
    * { box-sizing: border-box; }
    [hidden] { display: none !important; }
    #root { font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: var(--text); }
    button, textarea { font: inherit; color: inherit; }
    button { display: grid; place-items: center; padding: 0; border: 0; background: none; cursor: pointer; }
    svg { inline-size: 24px; block-size: 24px; fill: none; stroke: currentColor; stroke-width: 2;
      stroke-linecap: round; stroke-linejoin: round; }
    :focus-visible { outline: 3px solid var(--text); outline-offset: 2px; box-shadow: 0 0 0 2px var(--paper); }
    .unseen { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%);
      white-space: nowrap; }
    .launcher { position: fixed; z-index: 2147483000; inline-size: 56px; block-size: 56px; border-radius: 50%;
      inset-block-end: calc(20px + env(safe-area-inset-bottom)); inset-inline-end: 20px;
      background: var(--accent); color: var(--ink); border: 1px solid var(--ink);
      box-shadow: 0 4px 16px rgb(0 0 0 / .3); }
    .badge { position: absolute; inset-block-start: -5px; inset-inline-end: -5px; min-inline-size: 22px;
      padding-inline: 6px; border-radius: 11px; background: #b3141c; color: #fff; font-size: 13px; line-height: 22px;
      font-weight: 600; }
    .panel { position: fixed; z-index: 2147483001; display: flex; flex-direction: column; overflow: hidden;
      inset-block-end: calc(88px + env(safe-area-inset-bottom)); inset-inline-end: 20px;
      inline-size: min(380px, calc(100vw - 40px)); block-size: min(620px, calc(100dvh - 108px));
      background: var(--paper); border: 1px solid var(--line); border-radius: 14px;
      box-shadow: 0 8px 32px rgb(0 0 0 / .28); }
    .panel.full, .panel.full:focus { inset: 0; inline-size: 100%; block-size: 100dvh; border: 0; border-radius: 0; }
    .full ol.list, .full form { inline-size: 100%; max-inline-size: 760px; margin-inline: auto; }
    header { display: flex; align-items: center; justify-content: space-between; gap: 8px; min-block-size: 52px;
      padding-block: 6px; padding-inline: 16px 8px; background: var(--accent); color: var(--ink); }
    h2 { margin: 0; font-size: 16px; font-weight: 600; overflow-wrap: anywhere; }
    .close { flex: none; inline-size: 40px; block-size: 40px; border-radius: 8px; }
    header :focus-visible { outline-color: var(--ink); outline-offset: -4px; box-shadow: none; }
    .log { flex: 1; overflow-y: auto; overflow-anchor: none; overscroll-behavior: contain; padding: 12px; }
    .log:focus-visible { outline-offset: -3px; box-shadow: none; }
    ol.list { display: flex; flex-direction: column; gap: 10px; margin: 0; padding: 0; list-style: none; }
    .list > li { display: flex; flex-direction: column; max-inline-size: 85%; }
    .list > .visitor { align-self: flex-end; align-items: flex-end; }
    .list > .assistant { align-self: flex-start; align-items: flex-start; }
    .list > .note { align-self: center; color: var(--quiet); font-size: 13px; text-align: center; }
    .words { padding: 8px 12px; border-radius: 12px; background: var(--soft); overflow-wrap: anywhere; }
    .visitor > .words { background: var(--accent); color: var(--ink); white-space: pre-wrap; }
    .words :is(p, ul, ol, pre) { margin-block: 8px; }
    .words > .unseen + * { margin-block-start: 0; }
    .words > :last-child:last-child { margin-block-end: 0; }
    .words :is(ul, ol) { padding-inline-start: 22px; }
    .words a { color: inherit; text-decoration: underline; }
    code { font: 13px/1.4 ui-monospace, Consolas, monospace; }
    pre { overflow-x: auto; white-space: pre; }
    .label { margin-block-end: 2px; color: var(--quiet); font-size: 12px; font-weight: 600; }
    .label::before { content: "↩ " / ""; }
    .state:empty { display: none; }
    .foot { display: flex; gap: 6px; margin-block-start: 3px; color: var(--quiet); font-size: 12px; }
    .unsent > .words { outline: 1px dashed var(--quiet); outline-offset: 2px; }
    .refused .state { color: var(--alarm); }
    .status { padding-inline: 16px; color: var(--quiet); font-size: 13px; }
    .typing { display: flex; gap: 4px; padding-block: 4px 10px; }
    .typing i { inline-size: 7px; block-size: 7px; border-radius: 50%; background: currentColor;
      animation: breathe 1.2s infinite; }
    .typing i:nth-of-type(2) { animation-delay: .2s; }
    .typing i:nth-of-type(3) { animation-delay: .4s; }
    @keyframes breathe { 50% { opacity: .25; } }
    @media (prefers-reduced-motion: reduce) { .typing i { animation: none; } }
    form { display: flex; align-items: flex-end; gap: 8px; padding: 8px;
      padding-block-end: calc(8px + env(safe-area-inset-bottom)); border-block-start: 1px solid var(--line); }
    textarea { flex: 1; min-inline-size: 0; max-block-size: 140px; padding: 8px 12px; resize: none; font-size: 16px;
      border: 1px solid var(--quiet); border-radius: 10px; background: var(--paper); }
    textarea:focus-visible { outline-width: 2px; outline-offset: 0; box-shadow: none; }
    textarea::placeholder { color: var(--quiet); opacity: 1; }
    .send { flex: none; inline-size: 42px; block-size: 42px; border-radius: 10px; background: var(--accent);
      color: var(--ink); }
    @media (max-width: 480px), (max-height: 420px) {
      .panel { inset: 0; inline-size: 100%; block-size: 100dvh; border: 0; border-radius: 0; } }
  `;

  const launcher = makeButton("launcher", texts.open, "M4 5h16v11H10l-5 4v-4H4z");
  const badge = make("span", "badge");
  const news = make("span", "unseen");
  const close = makeButton("close", texts.close, "M6 6l12 12M18 6L6 18");
  const list = make("ol", "list");
  const log = make("div", "log", list);
  const typing = make("div", "status typing", make("span", "unseen", texts.typing), make("i"), make("i"), make("i"));
  const offline = make("div", "status");
  const input = make("textarea");
  const submit = makeButton("send", texts.send, "M5 12h14M13 6l6 6-6 6");
  const form = make("form", "", input, submit);
  const heading = make("h2", "", config.title);
  const panel = make("section", isFull ? "panel full" : "panel", make("header", "", heading), log, typing, offline, form);
  const root = make("div", "", launcher, news, panel);

  function build() {
    root.id = "root";
    root.lang = language;
    launcher.append(badge);
    launcher.setAttribute("aria-controls", "panel");
    launcher.hidden = isFull;
    news.role = "status";
    if (!isFull) heading.after(close);
    heading.id = "title";
    panel.id = "panel";
    panel.role = isFull ? "main" : "dialog";
    panel.setAttribute("aria-labelledby", "title");
    log.role = "log";
    log.tabIndex = 0;
    log.ariaLabel = texts.conversation;
    offline.role = "status";
    typing.hidden = true;
    input.rows = 1;
    input.maxLength = LONGEST_TEXT;
    input.placeholder = texts.write;
    input.ariaLabel = texts.write;
    input.enterKeyHint = "send";
    input.autocomplete = "off";
    submit.type = "submit";

    const greeting = makeBubble({ role: "assistant", kind: "reply", text: config.greeting ?? texts.greeting, at: 0 });
    greeting.querySelector(".foot").remove();
    place(greeting, -1);

    const host = make("div");
    const shadow = host.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    shadow.adoptedStyleSheets = [sheet];
    shadow.append(root);
    document.body.append(host);
  }

  function setOpen(isWanted, isFocused) {
    if (isOpen && !isWanted && seen !== Infinity && document.visibilityState === "visible") {
      acknowledge();
      seen = Math.max(seen, cursor); // what was on the screen is no news, even before the service has heard of it
    }
    isOpen = isWanted;
    panel.hidden = !isOpen;
    launcher.ariaExpanded = String(isOpen);
    showUnread();
    if (!isOpen) {
      if (isFocused) launcher.focus();
      return;
    }
    fitInput();
    log.scrollTop = log.scrollHeight;
    if (isFocused) input.focus();
    acknowledge();
  }

  function fitInput() {
    input.style.blockSize = "auto";
    input.style.blockSize = `${input.scrollHeight + 2}px`;
  }

  function submitInput() {
    const text = input.value.replaceAll("\0", "").trim();
    if (!text) return;
    input.value = "";
    fitInput();
    send(text);
  }

  function answerEvents() {
    launcher.addEventListener("click", () => setOpen(!isOpen, true));
    close.addEventListener("click", () => setOpen(false, true));
    panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.isComposing && !isFull) setOpen(false, true);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      submitInput();
      input.focus();
    });
    input.addEventListener("input", fitInput);
    input.addEventListener("keydown", (event) => {
      // While a word is being composed (Chinese, Japanese…), Enter chooses it; Safari tells by 229 only.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      submitInput();
    });
    log.addEventListener("scroll", () => {
      if (log.scrollTop < 80) loadOlder();
    });
    // What the visitor types here is not for the page's own shortcuts.
    for (const name of ["keydown", "keyup", "keypress"]) root.addEventListener(name, (event) => event.stopPropagation());

    addEventListener("online", () => {
      cutWires(); // the network has changed under them
      comeBack();
    });
    addEventListener("pageshow", comeBack);
    let falling;
    document.addEventListener("visibilitychange", () => {
      clearTimeout(falling);
      if (document.visibilityState === "visible") comeBack();
      else falling = setTimeout(fallAsleep, SLEEP_AFTER);
    });
    addEventListener("storage", ({ key: changed, newValue }) => {
      if (changed === key("token") && newValue && newValue !== token) adopt(newValue);
    });
  }

  function fallAsleep() {
    isAsleep = true;
    stream?.cut();
  }

  function comeBack() {
    isAsleep = false;
    if (stream && Date.now() - stream.heardAt > SILENCE / 2) stream.cut();
    setTimeout(wake, 50);
    listen();
    flush();
    acknowledge();
  }

  function start() {
    build();
    answerEvents();
    readUnsent().forEach(enqueue);
    setOpen(isFull || script.hasAttribute("data-open"), isFull);
    listen();
    flush();
  }

  window.vuelvo = Object.freeze({ open: () => setOpen(true, true), close: () => setOpen(isFull, true) });
  if (document.body) start();
  else addEventListener("DOMContentLoaded", start, { once: true });
})();

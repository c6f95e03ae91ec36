// The launcher: the button in the corner, the page's API, and nothing else until somebody wants to talk.
//
// `config` is what the service tells of the tenant: tenant, title, greeting, languages, color, ink. In /widget/TENANT.js it
// stands at the end of this script; a pinned script (/widget/TENANT/loader.HASH.js) is the same for every tenant and asks
// for it. `PANELS`, put in by build.py, holds the hash of each panel that belongs to this launcher.
//
// The panel finds `host` as a property of its script element, so that the page gets no global it did not ask for. Both
// sides talk by name and value only, so that there may be a frame between them: `host.tell(name, value)` to the panel
// (open, close, identify, forget), `host.say(name, detail)` from it (open, close, unread, message, refused).

import STYLE from "./launcher.css";
import TEXTS from "./texts/*.json#launcher";

const script = document.currentScript ?? document.querySelector("script[src*=widget]");
const base = config ? script.src.replace(/\.js([?#].*)?$/, "/") : new URL(".", script.src).href;

function start() {
  if (window.vuelvo?.open) return; // the page includes the script twice
  const options = script.dataset;
  const handlers = {};
  let loading = null;
  let policy;
  let language;
  let failed;

  const make = (tag, what) => Object.assign(document.createElement(tag), what);
  const launcher = make("button", {
    className: "launcher",
    ariaExpanded: false,
    hidden: "full" in options || options.launcher === "none",
    onclick: () => (host.isOpen ? vuelvo.close() : vuelvo.open()),
    onpointerover: loadAhead,
    onfocus: loadAhead,
  });
  const note = make("p", { className: "note", role: "alert" });
  const panel = make("section", { className: "panel", id: "panel" });
  const element = make("div");
  const root = element.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();

  function load() {
    const hash = PANELS["isolate" in options ? "frame" : language];
    loading ??= new Promise((resolve, reject) => {
      let src = `${base}panel.${hash}.js`;
      try {
        policy ??= trustedTypes.createPolicy("vuelvo", { createScriptURL: String });
        src = policy.createScriptURL(src);
      } catch {
        // There are no Trusted Types, or the page grants none of this name: then it may refuse the address.
      }
      setTimeout(reject, 20_000);
      const code = make("script", {
        vuelvo: host,
        async: false, // the panel of one language after that of another
        src,
        integrity: `sha256-${hash}=`,
        crossOrigin: "",
        nonce: script.nonce,
        onload: resolve,
        onerror: reject,
      });
      document.head.append(code);
    }).catch((problem) => {
      loading = null;
      throw problem;
    });
    return loading;
  }

  function loadAhead() {
    load().catch(() => {}); // a click says it in words
  }

  function loadLater() {
    (window.requestIdleCallback ?? setTimeout)(loadAhead);
  }

  async function open(isFocused) {
    note.textContent = host.waiting ? "…" : "";
    host.tell("open", isFocused);
    try {
      await load();
      note.textContent = "";
    } catch {
      note.textContent = failed;
    }
  }

  function chooseLanguage() {
    const { languages } = config;
    const tags = [options.language, ...navigator.languages, ...languages];
    language = tags.map((tag) => tag?.slice(0, 2).toLowerCase()).find((tag) => languages.includes(tag));
    element.lang = language;
    [host.open, failed] = TEXTS[language];
    launcher.ariaLabel = host.open;
  }

  const host = {
    base,
    config,
    options,
    root,
    waiting: [],
    tell: (...what) => host.waiting.push(what), // until the panel is there, which has a better one
    // Each on its own: what the page's handlers throw is the page's.
    say: (name, detail = {}) => handlers[name]?.forEach((handler) => queueMicrotask(() => handler(detail))),
  };

  function tell(name, value) {
    host.tell(name, value);
    loadLater();
  }

  const vuelvo = {
    open: () => open(true),
    close: () => host.tell("close"),
    identify: (jwt) => tell("identify", jwt),
    forget: () => tell("forget"),
    on(name, handler) {
      (handlers[name] ??= new Set()).add(handler);
      return () => handlers[name].delete(handler);
    },
    setLanguage(tag) {
      options.language = tag;
      chooseLanguage();
      if (!loading) return;
      loading = null; // the panel of another language brings its texts to the one that is there
      loadAhead();
    },
    get isOpen() {
      return !!host.isOpen;
    },
    get unread() {
      return host.unread ?? 0;
    },
  };

  const side = options.position === "left" ? "20px auto" : "auto 20px";
  element.style.cssText = `--accent:${config.color};--ink:${config.ink};--side:${side}`;
  launcher.setAttribute("aria-controls", "panel");
  chooseLanguage();
  sheet.replaceSync(STYLE);
  root.adoptedStyleSheets = [sheet];
  root.append(launcher, note, panel);
  document.body.append(element);

  window.vuelvo = vuelvo;
  const push = (call) => queueMicrotask(() => call(vuelvo));
  window.vuelvoQueue?.forEach?.(push);
  window.vuelvoQueue = { push };
  push(() => host.say("ready"));
  if (options.identity) vuelvo.identify(options.identity);
  if ("full" in options || "open" in options) open("full" in options);
  try {
    if (localStorage[`vuelvo:${config.tenant}:talked`]) loadLater(); // for what is unread
  } catch {
    // storage is blocked
  }
}

async function begin() {
  try {
    config ??= await (await fetch(`${base}config`, { credentials: "omit" })).json();
    if (!config.tenant) throw config.detail;
    if (document.body) start();
    else addEventListener("DOMContentLoaded", start);
  } catch (problem) {
    console.warn("Vuelvo:", problem);
  }
}

begin();

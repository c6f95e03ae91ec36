// Put into every page before its own scripts: looks at the widget as its visitor does.
(() => {
  const MARK = /\b[nw]\d+x\d+x\d+\b/g;

  const find = () => [...document.querySelectorAll("*")].find((each) => each.shadowRoot?.querySelector("ol.list"));

  // Only what is said: no greeting (it has no time), no notes, no days.
  function bubbles() {
    const shadow = find()?.shadowRoot;
    const items = [...(shadow?.querySelectorAll("ol.list > li:is(.visitor, .assistant)") ?? [])];
    return items.filter((item) => item.querySelector("time"));
  }

  function words(item) {
    const copy = item.querySelector(".words").cloneNode(true);
    for (const unseen of copy.querySelectorAll(".unseen")) unseen.remove();
    return copy.textContent;
  }

  const shown = () => bubbles().map((item) => [item.classList.contains("visitor") ? "customer" : "assistant", words(item)]);

  const listeners = new Set();
  const told = new Set();

  // What is on the screen at any moment: nothing twice, and the news in their order.
  function judge() {
    const seen = new Set();
    let last = [-1, -1];
    for (const [role, text] of shown()) {
      const mark = text.match(MARK)?.[0];
      if (!mark || (role === "assistant" && mark.startsWith("w"))) continue; // a reminder repeats what was asked
      if (seen.has(mark)) tell(`${mark} is shown twice`);
      seen.add(mark);
      if (mark.startsWith("n")) {
        const [, ...place] = mark.match(/\d+x(\d+)x(\d+)/).map(Number);
        if (place[0] < last[0] || (place[0] === last[0] && place[1] < last[1])) tell(`${mark} is shown after a later one`);
        last = place;
      }
    }
  }

  function tell(problem) {
    if (told.has(problem)) return;
    told.add(problem);
    window.tellCuts(problem);
  }

  let isDue = false;
  const changed = new MutationObserver(() => {
    for (const listener of [...listeners]) listener();
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      judge();
    });
  });

  const watched = new WeakSet();
  function watch() {
    const shadow = find()?.shadowRoot;
    if (!shadow || watched.has(shadow)) return;
    watched.add(shadow);
    changed.observe(shadow, { subtree: true, childList: true, characterData: true, attributes: true });
    for (const listener of [...listeners]) listener();
  }
  new MutationObserver(watch).observe(document, { subtree: true, childList: true });
  document.addEventListener("DOMContentLoaded", watch);
  setInterval(watch, 50); // a shadow root is filled without a word

  function change(within) {
    return new Promise((resolve) => {
      const end = () => {
        listeners.delete(end);
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(end, within);
      listeners.add(end);
    });
  }

  // As a browser tells a page that nobody looks at; one without a window never does.
  function turn(state, event) {
    Object.defineProperty(document, "visibilityState", { get: () => state, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
    document.dispatchEvent(new Event(event));
  }

  window.cuts = {
    shown,
    fallAsleep: () => turn("hidden", "freeze"),
    wakeUp: () => turn("visible", "resume"),
    isTroubled: () => /Not sent yet|No connection/.test(find()?.shadowRoot.textContent),
    change,
    // Returns when all these marks are shown, in ms since the epoch; null when they are not within so many ms.
    async until(marks, within) {
      const end = Date.now() + within;
      for (;;) {
        const text = shown().map(([, words]) => words + "\n").join("");
        if (marks.every((mark) => text.match(MARK)?.includes(mark))) return Date.now();
        if (Date.now() > end) return null;
        await change(Math.max(end - Date.now(), 10));
      }
    },
  };
})();

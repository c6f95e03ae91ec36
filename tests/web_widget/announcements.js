// What a screen reader would read aloud, in `announced`: what is added to live regions that are shown and not busy.
(() => {
  window.announced = [];
  const watched = new WeakSet();

  function regionOf(node) {
    const element = node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement;
    if (!element || element.closest("[aria-hidden=true], [hidden], [inert]")) return null;
    const region = element.closest("[role=log], [role=status], [role=alert], [aria-live]");
    return region?.ariaLive === "off" ? null : region;
  }

  const observer = new MutationObserver((records) => {
    const added = [];
    for (const { type, target, addedNodes } of records) {
      if (type === "characterData") added.push(target);
      else added.push(...addedNodes);
    }
    // The browser tells the screen reader after the script, when a region made busy and ready again in one go is ready.
    setTimeout(() => {
      for (const node of added) {
        const region = node.isConnected ? regionOf(node) : null;
        if (region && region.ariaBusy !== "true" && region.checkVisibility() && node.textContent.trim()) {
          window.announced.push(node.textContent.trim());
        }
      }
    });
  });

  setInterval(() => {
    for (const { shadowRoot } of document.querySelectorAll("*")) {
      if (!shadowRoot || watched.has(shadowRoot)) continue;
      watched.add(shadowRoot);
      observer.observe(shadowRoot, { subtree: true, childList: true, characterData: true });
    }
  }, 10);
})();

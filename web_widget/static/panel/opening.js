// Opening and closing: where the focus goes, and on a small screen, which the panel covers, that the page waits behind it.

import { host, isFixed, isFull, launcher, on, options, panel, root, say } from "./host.js";

const small = matchMedia("(max-width: 480px), (max-height: 420px)");
const resting = new Set(); // what was not inert before
let opener;

export function setOpen(isWanted, isFocused, inside) {
  if (isFixed && !isWanted) return;
  const isChange = isWanted === !host.isOpen;
  const isFocusHere = panel.contains(root.activeElement);
  if (isChange && isFocused) {
    opener = document.activeElement === root.host ? launcher : document.activeElement;
  }
  host.isOpen = isWanted;
  panel.hidden = !isWanted;
  launcher.ariaExpanded = isWanted;
  coverPage();
  if (isWanted && isFocused) inside.focus();
  if (!isWanted && isFocusHere) (opener?.isConnected ? opener : launcher).focus();
  if (isChange) say(isWanted ? "open" : "close");
}

// ---- The page behind

function coverPage() {
  const isCovering = host.isOpen && !isFull && small.matches;
  panel.classList.toggle("full", isFull || small.matches);
  panel.ariaModal = isCovering || null;
  launcher.hidden = isCovering || isFull || options.launcher === "none";
  for (const each of document.body.children) {
    if (each !== root.host && (isCovering ? !each.inert : resting.delete(each))) {
      each.inert = isCovering;
      if (isCovering) resting.add(each);
    }
  }
  fitScreen();
}

// The keyboard of a phone covers what only this view tells of.
function fitScreen() {
  const { height, offsetTop, scale } = visualViewport;
  const isFitted = host.isOpen && scale < 1.05 && panel.classList.contains("full");
  panel.style.cssText = isFitted ? `height:${height}px;top:${offsetTop}px` : "";
}

export function watchScreen() {
  on(small, "change", coverPage);
  on(visualViewport, "resize scroll", fitScreen);
}

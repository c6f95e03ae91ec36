// News for somebody who is not looking: the count on the launcher and in the page's title, and one polite sentence.

import { host, launcher, make, panel, say, texts } from "./host.js";

const GATHERED_FOR = 500; // ms

const badge = make("span", "badge");
const news = make("span", "unseen");
let mark = "";
let gathering;

export function buildNotices() {
  host.unread = 0;
  news.role = "status";
  launcher.append(badge);
  panel.before(news);
}

export function tellUnread(count) {
  launcher.ariaLabel = (host.isOpen ? texts.close : host.open) + (count ? ", " : "") + countUnread(count);
  badge.hidden = !count;
  badge.textContent = count > 99 ? "99+" : count;
  // The page may have given itself another title meanwhile.
  const { title } = document;
  const plain = title.startsWith(mark) ? title.slice(mark.length) : title;
  mark = count ? `(${count}) ` : "";
  if (title !== mark + plain) document.title = mark + plain;
  if (count === host.unread) return;
  host.unread = count;
  say("unread", { count });
  announce(() => 0);
}

function countUnread(count) {
  return count ? texts.unread[+(count > 1)].replace("{}", count) : "";
}

// Once for all that comes within half a second; `tell` gives the count.
export function announce(tell) {
  gathering ??= setTimeout(() => {
    gathering = null;
    const count = tell();
    const words = countUnread(host.unread || count);
    if (news.textContent !== words) news.textContent = words;
  }, GATHERED_FOR);
}

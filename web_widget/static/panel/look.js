// How the panel looks, and the frame around it.

import STYLE from "../panel.css";
import { addStyle, options, panel, root } from "./host.js";
import { buildNotices } from "./notices.js";
import { watchScreen } from "./opening.js";

export function dress() {
  addStyle(STYLE);
  root.host.style.setProperty("--scheme", options.theme ?? "");
  panel.hidden = true;
  buildNotices();
  watchScreen();
}

// How the panel looks, and the frame around it.

import STYLE from "../panel.css";
import { addStyle, panel } from "./host.js";
import { buildNotices } from "./notices.js";
import { watchScreen } from "./opening.js";

export function dress() {
  addStyle(STYLE);
  panel.hidden = true;
  buildNotices();
  watchScreen();
}

// In the frame (data-isolate): the panel obeys the page around it, through one port, which it takes from its parent alone,
// and once. frame.js is the other end.

import { host, on, options, root } from "./host.js";
import { recall } from "./storage.js";

export function obeyParent(obey) {
  host.tell = () => {}; // the frame's own launcher has no say
  on(window, "message", ({ source, data, ports: [port] }) => {
    if (source !== parent || data !== "vuelvo" || !port || host.port) return;
    host.port = port;
    const sayHere = host.say;
    host.say = (name, detail) => {
      sayHere(name, detail);
      port.postMessage([name, detail, recall("talked")]);
    };
    port.onmessage = ({ data: [name, value] }) => {
      if (name === "look") {
        document.documentElement.dir = value.dir;
        root.host.style.setProperty("--vuelvo-font", value.font);
        root.host.style.setProperty("--scheme", value.scheme);
        if (value.hasSound) options.sound = "";
      } else if (name === "language") window.vuelvo.setLanguage(value);
      else obey(name, value);
    };
    host.say("ready");
  });
}

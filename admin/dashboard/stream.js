// The gateway's stream, once for all tabs of a browser: a shared worker. A browser has six connections to a gateway at most, so a stream for
// each tab would leave the seventh tab, and all requests of the others, waiting for ever. A browser without shared workers (Android's) runs it
// as a worker of each tab.
"use strict";
const ADDRESS = "/v1/stream?topics=50&events=0"; // each snapshot is whole: after a pause the next one has all there is
const tabs = new Set(); // those that want it
let source = null;

function tell(what, data) {
  for (const tab of tabs) tab.postMessage({ what, data });
}

function close() {
  source?.close();
  source = null;
}

function open() {
  if (source) return;
  source = new EventSource(ADDRESS);
  source.addEventListener("snapshot", (message) => tell("snapshot", message.data));
  for (const what of ["end", "error"]) {
    source.addEventListener(what, () => {
      close();
      tell(what);
    });
  }
}

function serve(tab) {
  tab.onmessage = ({ data }) => {
    if (data === "open") {
      tabs.add(tab);
      open();
    } else {
      tabs.delete(tab);
      if (!tabs.size) close();
    }
  };
}

if ("onconnect" in self) onconnect = (event) => serve(event.ports[0]);
else serve(self);

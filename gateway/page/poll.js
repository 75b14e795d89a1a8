// Asks again and again, more slowly while nothing answers, and says how old its numbers are.

const EVERY_MS = 2000;
const SLOWEST_MS = 16000;
const OLD_MS = 3 * EVERY_MS;
const SERVICE_EVERY = 5; // polls

let pause = EVERY_MS;
let polls = 0;
let heardAt = null;
let timer = null;
let asking = false;

async function poll() {
  if (asking) return;
  asking = true;
  clearTimeout(timer);
  try {
    showReadiness(await readiness());
    showLoad(await document_of("psionic/csm/load"));
    if (polls++ % SERVICE_EVERY === 0) showService(await document_of("psionic/csm/worker/metadata"));
    heardAt = Date.now();
    pause = EVERY_MS;
    notice(null);
  } catch (error) {
    polls = 0;
    pause = Math.min(SLOWEST_MS, 2 * pause);
    notice(error);
  } finally {
    asking = false;
  }
  age();
  if (!document.hidden) timer = setTimeout(poll, pause);
}

function notice(error) {
  const box = part("notice");
  box.hidden = error === null;
  if (error === null) return;
  if (!(error instanceof Refused)) {
    box.textContent = heardAt === null ? "The gateway does not answer." : "The gateway does not answer. The numbers below are old.";
    show("readiness", "no answer");
    part("readiness").dataset.state = "away";
  } else if (error.status === 401) {
    box.textContent = key ? "This gateway does not take that key." : "This gateway wants an API key. It stays in this page's memory.";
  } else {
    box.textContent = `${error.envelope.code}: ${error.envelope.message}.${heardAt === null ? "" : " The numbers below are old."}`;
  }
}

function age() {
  const old = heardAt === null ? null : Date.now() - heardAt;
  const stale = old === null || old > OLD_MS;
  document.body.classList.toggle("stale", stale);
  part("freshness").dataset.state = stale ? "stale" : "fresh";
  if (old === null) show("freshness", "no numbers yet");
  else show("freshness", stale ? `STALE: ${duration(old)} old` : "live");
}

function again() {
  pause = EVERY_MS;
  polls = 0;
  poll();
}

part("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(part("key").value);
  again();
});
part("speak-form").addEventListener("submit", speak);
part("cancel").addEventListener("click", cancel);
part("evidence").addEventListener("toggle", showEvidence);
part("text").addEventListener("input", showUnknown);
part("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) part("speak-form").requestSubmit();
});
document.addEventListener("visibilitychange", () => document.hidden || again());
setInterval(age, 1000);
age();
poll();

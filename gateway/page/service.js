// The gateway, as this page asks it. The key is held here and nowhere else.

const PATIENCE_MS = 5000;
let key = "";

class Refused extends Error {
  // A refusal with its envelope: {code, message, retryable, ...}; afterS when it said when to come back.
  constructor(status, envelope, afterS) {
    super(envelope.message);
    this.status = status;
    this.envelope = envelope;
    this.afterS = afterS;
  }
}

function setKey(typed) {
  key = typed.replace(/[^\x21-\x7e]/g, ""); // no key has others, and no header may
}

function headers(more = {}) {
  return key ? { authorization: `Bearer ${key}`, ...more } : more;
}

// Paths are relative to this page's own, so that it also works behind a prefix.
function ask(path, options = {}) {
  return fetch(path, {
    cache: "no-store",
    credentials: "omit",
    signal: AbortSignal.timeout(PATIENCE_MS),
    ...options,
    headers: headers(options.headers),
  });
}

function post(path, body, options = {}) {
  const json = { "content-type": "application/json" };
  return ask(path, { method: "POST", body: JSON.stringify(body), headers: json, ...options });
}

async function document_of(path) {
  const answer = await ask(path);
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

async function refusal(answer) {
  const after = Number(answer.headers.get("retry-after")) || null;
  let envelope = null;
  try {
    envelope = (await answer.json()).error;
  } catch {
    // what is no envelope comes from something before the gateway
  }
  const plain = { code: `HTTP ${answer.status}`, message: "not an answer of a gateway", retryable: false };
  return new Refused(answer.status, envelope ?? plain, after);
}

// Whether it would serve: needs no key. A 503 is an answer, too.
async function readiness() {
  const answer = await ask("health/ready");
  const told = await answer.json();
  return { ready: answer.ok, reasons: told.reasons ?? [] };
}

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `console-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

// The events of a speech request, one by one.
async function* spoken(body, signal) {
  const whole = { ...body, stream: true, stream_format: "jsonl_base64" };
  const answer = await post("psionic/csm/speech", whole, { signal });
  if (!answer.ok) throw await refusal(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) yield JSON.parse(line);
  }
}

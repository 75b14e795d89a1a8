// What OpenAI's own Node client makes of a gateway, as one JSON object on standard output.
//   node client.mjs <url> <lossy url> <key> <voice>
import OpenAI from "openai";

const [url, lossyUrl, apiKey, voice] = process.argv.slice(2);
const model = "sesame/csm-1b";
const said = { seed: 7, max_audio_length_ms: 400 };
const client = (options = {}) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, timeout: 30_000, ...options });
const speak = (ours, body = {}, options = {}) =>
  ours.audio.speech.create({ model, voice, input: "Hello.", ...said, ...body }, options);
const failure = async (promise) => {
  try {
    await promise;
  } catch (error) {
    return { kind: error.constructor.name, status: error.status ?? null, code: error.code ?? null };
  }
  return null;
};
const hex = (bytes) => Buffer.from(bytes).toString("hex");

const ours = client();
const told = {};

told.models = (await ours.models.list()).data.map((each) => each.id);

const whole = await speak(ours, { response_format: "wav" });
told.wav = hex(await whole.arrayBuffer());

const raw = await speak(ours, {
  response_format: "pcm",
  stream_format: "audio",
  max_audio_length_ms: 4000,
});
let pieces = 0;
let bytes = 0;
for await (const piece of raw.body) {
  pieces += 1;
  bytes += piece.length;
}
told.stream = { pieces, bytes };

const events = await speak(ours, { response_format: "pcm", stream_format: "sse" });
const lines = (await events.text()).split("\n").filter((line) => line.startsWith("data: "));
const heard = lines.map((line) => JSON.parse(line.slice("data: ".length)));
told.events = heard.map((event) => event.type);
told.audio = heard.map((event) => Buffer.from(event.audio ?? "", "base64").toString("hex")).join("");

told.errors = [
  await failure(speak(ours, { request_id: "a b" })),
  await failure(client({ apiKey: "x".repeat(16) }).models.list()),
  await failure(speak(ours, { model: "gpt-4o-mini-tts" })),
  await failure(speak(ours, { timeout_ms: "soon" })),
  await failure(speak(ours, { input: "[eos 0]" })),
  await failure(speak(client({ timeout: 300 }), { max_audio_length_ms: 20_000 })),
];

await speak(ours, { request_id: "node-conflict" });
told.conflict = await failure(
  speak(client({ maxRetries: 2 }), { input: "Bye.", request_id: "node-conflict" }),
);

const lost = await speak(
  client({ baseURL: `${lossyUrl}/v1`, maxRetries: 2 }),
  { response_format: "wav" },
  { headers: { "Idempotency-Key": "node-lost" } },
);
told.lost = {
  wav: hex(await lost.arrayBuffer()),
  replayed: lost.headers.get("x-psionic-csm-replayed"),
};

console.log(JSON.stringify(told));

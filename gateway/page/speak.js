// The form that speaks a text.

let running = null; // {id, abort, sound} while a request is under way
let countdown = null;

async function speak(event) {
  event.preventDefault();
  if (running) return;
  const text = part("text").value;
  const body = { request_id: newId(), input: text };
  if (part("voice").value) body.voice_profile_id = part("voice").value;
  if (part("seed").value) body.seed = Number(part("seed").value);
  const abort = new AbortController();
  const sound = new Sound();
  running = { id: body.request_id, abort, sound };
  begin();
  const asked = performance.now();
  try {
    await hear(spoken(body, abort.signal), sound, asked);
  } catch (error) {
    if (error instanceof Refused) showRefusal(error.envelope, error.afterS);
    else if (abort.signal.aborted) show("progress", "cancelled");
    else showRefusal({ code: "connection_lost", message: "the gateway can't be reached, or the stream broke off", retryable: true });
  } finally {
    running = null;
    end(sound);
  }
}

async function hear(events, sound, asked) {
  let first = null;
  for await (const event of events) {
    if (event.event === "audio") {
      first ??= performance.now() - asked;
      sound.frame(event.data_base64);
      if (!sound.stopped) show("progress", `first audio after ${duration(first)} · ${sound.seconds.toFixed(1)} s so far`);
    } else if (event.event === "terminal") {
      showResult(event, first, sound);
      return;
    } else if (event.event === "error") {
      showResult(event, first, sound);
      showRefusal(event.error);
      return;
    }
  }
  throw new TypeError("the stream broke off");
}

async function cancel() {
  if (!running) return;
  const { id, abort, sound } = running;
  part("cancel").disabled = true;
  sound.stop();
  show("progress", "cancelling");
  try {
    const answer = await post("psionic/csm/cancellations", { request_id: id });
    if (!answer.ok) throw await refusal(answer);
  } catch {
    abort.abort(); // to leave stops it, too
    return;
  }
  setTimeout(() => abort.abort(), 3000);
}

function begin() {
  clearInterval(countdown);
  part("speak").disabled = true;
  part("cancel").disabled = false;
  for (const id of ["refusal", "result", "player", "evidence"]) part(id).hidden = true;
  part("evidence").open = false;
  show("progress", "waiting for the first audio");
}

function end(sound) {
  part("speak").disabled = false;
  part("cancel").disabled = true;
  sound.close();
  if (sound.seconds === 0) return;
  const player = part("player");
  if (player.src) URL.revokeObjectURL(player.src);
  player.src = URL.createObjectURL(sound.file());
  player.hidden = false;
}

function showResult(end, first, sound) {
  const how = `ended by ${[end.finish_reason, end.stop_cause].filter(Boolean).join(", ")}`;
  show("progress", first === null ? how : `first audio after ${duration(first)} · ${sound.seconds.toFixed(1)} s · ${how}`);
  const spent = end.full_generation_latency_ms;
  const speed = spent && end.output_duration_ms ? `, ${(end.output_duration_ms / spent).toFixed(2)} times real time` : "";
  facts("result", [
    ["First audio, here", first === null ? null : duration(first)],
    ["First audio, gateway", end.first_audio_latency_ms === null ? null : `${duration(end.first_audio_latency_ms)}, ${duration(end.queue_wait_ms)} of it in the queue`],
    ["Whole answer", spent === null ? null : duration(spent) + speed],
    ["Gaps while playing", sound.gaps || null],
    ["Spoken by", end.worker_id && `${end.worker_id} on ${end.backend}, attempt ${end.attempt}`],
    ["Request", end.request_id],
    ["Seed", end.seed],
    ["WAV digest", end.wav_pcm16_digest],
  ]);
  part("result").hidden = false;
  part("evidence").dataset.request = end.request_id;
  part("evidence").hidden = false;
}

// What the service keeps of a request for ten minutes, to judge it by.
async function showEvidence() {
  const { open, dataset } = part("evidence");
  if (!open) return;
  try {
    const evidence = await document_of(`psionic/csm/evidence/${dataset.request}`);
    show("evidence-text", JSON.stringify(evidence, null, 2));
  } catch (error) {
    show("evidence-text", error instanceof Refused ? error.envelope.code : "no answer");
  }
}

// The envelope of a refusal: its code, and whether and when another try makes sense.
function showRefusal(envelope, afterS = null) {
  show("refusal-code", envelope.code);
  show("refusal-message", envelope.message);
  const fallback = envelope.fallback_recommended ? ` A caller falls back: ${envelope.rollback_target}.` : "";
  const hint = (left) => {
    const wait = left > 0 ? `Try again in ${left} s.` : "Another try may work.";
    show("refusal-hint", (envelope.retryable ? wait : "The same request is refused again.") + fallback);
  };
  let left = afterS ?? 0;
  hint(left);
  clearInterval(countdown);
  if (left > 0) countdown = setInterval(() => (hint(--left), left > 0 || clearInterval(countdown)), 1000);
  part("refusal").hidden = false;
  if (part("result").hidden) show("progress", "");
}

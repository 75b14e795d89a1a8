// What is shown. Names and texts come from others: they are set as text, never as markup.

const HISTORY = 120;
const depths = [];

const part = (id) => document.getElementById(id);

function show(id, text) {
  part(id).textContent = text;
}

function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

function megabytes(bytes) {
  if (!bytes) return "–";
  return bytes >= 2 ** 30 ? `${(bytes / 2 ** 30).toFixed(1)} GB` : `${Math.round(bytes / 2 ** 20)} MB`;
}

// model@digest with as much of the digest as a queue's name has.
function short(artifact) {
  return artifact ? artifact.replace(/sha256:(.{12}).*/, "$1") : "–";
}

function element(name, text, more = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  Object.assign(made.dataset, more);
  return made;
}

function facts(id, pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  part(id).replaceChildren(...known.flatMap(([name, value]) => [element("dt", name), element("dd", String(value))]));
}

function rows(id, cells) {
  const labels = Array.from(part(id).tHead.rows[0].cells, (cell) => cell.textContent);
  const made = cells.map((values) => {
    const row = document.createElement("tr");
    values.forEach((value, i) => {
      const cell = value instanceof Node ? value : element("td", value);
      cell.dataset.label = labels[i];
      row.append(cell);
    });
    return row;
  });
  part(id).tBodies[0].replaceChildren(...made);
}

function showReadiness({ ready, reasons }) {
  show("readiness", ready ? "ready" : `not ready: ${reasons.join(", ") || "unknown"}`);
  part("readiness").dataset.state = ready ? "ready" : "not_ready";
}

function showLoad(load) {
  depths.push(load.queue_depth);
  if (depths.length > HISTORY) depths.shift();
  const most = Math.max(1, ...depths);
  const line = depths.map((depth, i) => `${HISTORY - depths.length + i},${23 - (22 * depth) / most}`);
  part("depth-line").firstElementChild.setAttribute("points", line.join(" "));
  show("depth", load.queue_depth);
  show("flight", `${load.in_flight_requests} / ${load.capacity_lanes}`);
  part("flight-bar").max = Math.max(1, load.capacity_lanes);
  part("flight-bar").value = load.in_flight_requests;
  show("wait", duration(load.estimated_wait_ms));
  const off = load.estimated_wait_error_ms;
  show("wait-hint", off ? `for a new request, off by ${duration(off)}` : "for a new request");
  show("oldest", duration(load.oldest_wait_ms));
  show("refused", load.refused_recently);
  const codes = Object.entries(load.refused_codes).map(([code, count]) => `${count} ${code}`);
  show("refused-hint", codes.join(", ") || "last minute, this gateway");
  part("refused").classList.toggle("some", load.refused_recently > 0);
  show("callers", load.waiting_callers);
  show("callers-hint", `waiting, at ${load.gateways.length} gateway${load.gateways.length === 1 ? "" : "s"}`);
  const limited = load.redis_memory_ratio > 0;
  show("redis", limited ? `${Math.round(100 * load.redis_memory_ratio)} %` : "–");
  part("redis").dataset.state = load.redis_memory_ratio >= 0.7 ? "unavailable" : "fine";
  show("redis-hint", limited ? "of its memory limit" : "has no memory limit");
  showWorkers(load.workers);
  showQueues(load.artifacts);
}

function showWorkers(workers) {
  part("no-workers").hidden = workers.length > 0;
  part("workers").hidden = workers.length === 0;
  rows("workers", workers.map((worker) => [
    nameOf(worker),
    element("td", worker.state ?? "–", { state: worker.state ?? "unknown" }),
    `${worker.in_flight ?? "–"} / ${worker.lanes ?? "–"}`,
    [worker.served_backend, known(worker.gpu_model)].filter(Boolean).join(", ") || "–",
    megabytes(worker.memory_used_bytes) + (worker.utilization === null ? "" : `, ${Math.round(100 * worker.utilization)} %`),
    `${duration(worker.heartbeat_age_ms)} ago`,
    short(worker.artifact_id),
  ]));
}

function known(name) {
  return name && name !== "none" ? name : null;
}

function nameOf(worker) {
  const cell = element("td", worker.worker_id ?? "–");
  const why = [
    worker.refusal && `${worker.refusal.code}: ${worker.refusal.reason}`,
    worker.cpu_fallback_reason && `CPU FALLBACK: ${worker.cpu_fallback_reason}`,
  ].filter(Boolean);
  for (const line of why) {
    const note = element("span", line);
    note.className = "why";
    cell.append(note);
  }
  return cell;
}

function showQueues(queues) {
  rows("queues", queues.map((queue) => [
    queue.artifact_id ? short(queue.artifact_id) : queue.queue,
    queue.queue_depth,
    queue.batch_queue_depth,
    `${queue.in_flight_requests} / ${queue.capacity_lanes}`,
    duration(queue.estimated_wait_ms),
    duration(queue.estimated_wait_error_ms),
    duration(queue.mean_service_ms),
  ]));
}

function showService(about) {
  const { runtime, governance } = about;
  facts("service", [
    ["Answers to", about.model],
    ["Artifact", short(about.artifact_descriptor.artifact_id)],
    ["Runtime", `${runtime.state} on ${runtime.backend} (${runtime.execution_engine})`],
    ["Refusal", runtime.refusal && `${runtime.refusal.code}: ${runtime.refusal.reason}`],
    ["CPU fallback", runtime.cpu_fallback_reason],
    ["Formats", about.supported_response_formats.join(", ")],
    ["Licence", governance.license_posture],
    ["Watermark", governance.watermark_status],
    ["Before promotion", governance.missing_governance_blocks.join(", ")],
    ["Rolls back to", governance.rollback_target],
  ]);
  showVoices(about.voice_profiles);
  showLimits(about.speech_limits);
}

// What the artifact says that it can't say, and which words of the text that touches.
let vocabulary = null;

function showLimits(limits) {
  vocabulary = limits?.vocabulary ? new Set(limits.vocabulary) : null;
  part("limits").hidden = !limits;
  show("limits", limits?.note ?? "");
  showUnknown();
}

function showUnknown() {
  const said = part("text").value.toLowerCase().replaceAll("\u2019", "'").match(/[\p{L}\p{N}]+(?:'[\p{L}\p{N}]+)*/gu) ?? [];
  const unknown = vocabulary ? [...new Set(said)].filter((word) => !vocabulary.has(word)) : [];
  part("unknown").hidden = unknown.length === 0;
  show("unknown", `It does not know: ${unknown.join(", ")}`);
}

function showVoices(profiles) {
  const select = part("voice");
  const ids = profiles.map((profile) => profile.id);
  if (Array.from(select.options).slice(1).map((option) => option.value).join("\n") === ids.join("\n")) return;
  const chosen = select.value;
  const voices = profiles.map((profile) => new Option(`${profile.display_name} (${profile.id})`, profile.id));
  select.replaceChildren(new Option("default", ""), ...voices);
  select.value = ids.includes(chosen) ? chosen : "";
}

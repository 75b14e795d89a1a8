-- Live load of every queue. ARGV: ns
-- Returns per queue: what scheduler.load.QueueLoad holds, as JSON; then '' and per live worker: the age
--   of its heartbeat in ms and its document; then '' and per live gateway: its id, the age of its renewal
--   in ms and how many callers wait with it
redis.call('DEL', key('gateway', '')) -- nothing; but a Redis that takes no writes is away, and says so here
local now = now_ms()
local out = {}
local function add(value) out[#out + 1] = tostring(value) end

-- How long the first in line has waited, of either class.
local function oldest_wait(waiting)
  local oldest = 0
  for _, class in ipairs(CLASSES) do
    local first = redis.call('ZRANGEBYSCORE', waiting, scored(class, 0), '+inf', 'LIMIT', 0, 1)[1]
    if first then
      oldest = math.max(oldest, now - (tonumber(read_job(first, 'admitted_ms').admitted_ms or '') or now))
    end
  end
  return oldest
end

local REASONS = {'stop', 'length', 'cancelled', 'timeout', 'error', 'worker_lost', 'discarded'}
local function stood(queue)
  local waiting, lanes = key('waiting', queue), ready_lanes(queue, now)
  local _, expected, held = estimated_wait(queue, lanes, now, 'interactive')
  local stats = {}
  local said = redis.call('HGETALL', key('stats', queue))
  for i = 1, #said, 2 do stats[said[i]] = tonumber(said[i + 1]) end
  local ended_by = {}
  for _, reason in ipairs(REASONS) do ended_by[reason] = stats['ended:' .. reason] or 0 end
  return {queue = queue, depth = redis.call('ZCARD', waiting),
    batch_depth = redis.call('ZCOUNT', waiting, BATCH_FIRST, '+inf'),
    in_flight = redis.call('ZCARD', key('running', queue)), lanes = lanes,
    estimated_wait_ms = expected, oldest_wait_ms = oldest_wait(waiting),
    admitted = stats.admitted or 0, ended = stats.ended or 0, retried = stats.retried or 0,
    leases_lost = stats.leases_lost or 0, mean_service_ms = stats.service_ms or 0,
    mean_frames = stats.service_frames or 0, mean_budget_frames = stats.service_budget or 0,
    estimated_wait_error_ms = stats.wait_error_ms or 0, estimated_wait_bias_ms = stats.wait_bias_ms or 0,
    deadline_margin_ms = held - expected,
    ended_by = ended_by}
end

local queues = redis.call('SMEMBERS', key('queues'))
table.sort(queues)
for _, queue in ipairs(queues) do
  if is_name(queue) then add(cjson.encode(stood(queue))) end
end
add('')
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', key('workers'), now, '+inf')) do
  local doc = redis.call('GET', key('worker', worker))
  if doc then
    local beat, document = string.match(doc, '^(%d+)|(.*)$')
    if beat and document ~= '' then
      add(math.max(0, now - tonumber(beat)))
      add(document)
    end
  end
end
add('')
for _, gateway in ipairs(redis.call('ZRANGEBYSCORE', key('gateways'), now, '+inf')) do
  local said = redis.pcall('GET', key('gateway', gateway))
  local renewed, callers = string.match(type(said) == 'string' and said or '', '^(%d+)|(%d+)$')
  if renewed and is_name(gateway) then
    add(gateway)
    add(math.max(0, now - tonumber(renewed)))
    add(callers)
  end
end
return out

-- Live load of every queue. ARGV: ns
-- Returns per queue: name, waiting, waiting of class batch, running, lanes, estimated_wait_ms (of an
--   interactive newcomer), oldest_wait_ms, admitted, ended, retried, leases lost, service_ms,
--   service_frames, service_budget, wait_error_ms, wait_bias_ms, the ended of each reason; then '' and
--   per live worker: the age of its heartbeat in ms and its document; then '' and per live gateway: its
--   id, the age of its renewal in ms and how many callers wait with it
local now = now_ms()
local out = {}
local function add(value) out[#out + 1] = tostring(value) end
local queues = redis.call('SMEMBERS', key('queues'))
table.sort(queues)
for _, queue in ipairs(queues) do
  local waiting = key('waiting', queue)
  local lanes = ready_lanes(queue, now)
  local oldest = 0
  for _, class in ipairs(CLASSES) do
    local first = redis.call('ZRANGEBYSCORE', waiting, scored(class, 0), '+inf', 'LIMIT', 0, 1)[1]
    if first then
      oldest = math.max(oldest, now - (tonumber(read_job(first, 'admitted_ms').admitted_ms or '') or now))
    end
  end
  local stats = redis.call('HMGET', key('stats', queue), 'admitted', 'ended', 'retried', 'leases_lost',
    'service_ms', 'service_frames', 'service_budget', 'wait_error_ms', 'wait_bias_ms', 'ended:stop',
    'ended:length', 'ended:cancelled', 'ended:timeout', 'ended:error', 'ended:worker_lost',
    'ended:discarded')
  add(queue)
  add(redis.call('ZCARD', waiting))
  add(redis.call('ZCOUNT', waiting, BATCH_FIRST, '+inf'))
  add(redis.call('ZCARD', key('running', queue)))
  add(lanes)
  local _, expected = estimated_wait(queue, lanes, now, 'interactive')
  add(expected)
  add(oldest)
  for i = 1, 16 do add(stats[i] or '0') end
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
  if renewed then
    add(gateway)
    add(math.max(0, now - tonumber(renewed)))
    add(callers)
  end
end
return out

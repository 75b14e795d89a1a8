-- Live load of every queue. ARGV: ns
-- Returns per queue: name, waiting, running, lanes, estimated_wait_ms, oldest_wait_ms, service_ms,
--   admitted, ended, retried, leases lost, and the ended of each reason; then '' and per live worker:
--   the age of its heartbeat in ms and its document; then '' and per live gateway: its id, the age of
--   its renewal in ms and how many callers wait with it
local now = now_ms()
local out = {}
local function add(value) out[#out + 1] = tostring(value) end
local queues = redis.call('SMEMBERS', key('queues'))
table.sort(queues)
for _, queue in ipairs(queues) do
  local lanes = ready_lanes(queue, now)
  local oldest = 0
  local first = redis.call('ZRANGE', key('waiting', queue), 0, 0)[1]
  if first then
    oldest = now - (tonumber(read_job(first, 'admitted_ms').admitted_ms or '') or now)
  end
  local stats = redis.call('HMGET', key('stats', queue), 'service_ms', 'admitted', 'ended', 'retried',
    'leases_lost', 'ended:stop', 'ended:length', 'ended:cancelled', 'ended:timeout', 'ended:error',
    'ended:worker_lost', 'ended:discarded')
  add(queue)
  add(redis.call('ZCARD', key('waiting', queue)))
  add(redis.call('ZCARD', key('running', queue)))
  add(lanes)
  add(estimated_wait(queue, lanes, now))
  add(oldest)
  for i = 1, 12 do add(stats[i] or '0') end
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

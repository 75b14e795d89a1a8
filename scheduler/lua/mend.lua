-- Put right what somebody put in the place of a key that all jobs share, after a script met it and broke
-- off. What is no value of the right type is removed, and so is what is no number where one belongs.
-- Everything that can be told from the jobs themselves is told anew: who waits, who runs, the lines, the
-- ring, the sums and the count of the admitted. Heartbeats and gateways renew the rest. Reads every key:
-- for such a case only.
-- KEYS: RQ's list of a queue, if one was in use. ARGV: ns, lease_ms
-- Returns how many keys and fields were removed.
local lease = tonumber(ARGV[2])
local now = now_ms()
local mended = 0

local function mend(k, kind)
  if holds(k, kind) then return false end
  redis.call('UNLINK', k)
  mended = mended + 1
  return true
end

-- Counts, and means, which have fractions.
local FRACTIONS = {service_ms = true, service_frames = true, service_budget = true,
  wait_error_ms = true, wait_bias_ms = true, warm_step_ms = true}
for _, part in ipairs(SPREAD) do
  FRACTIONS['wait_over' .. part], FRACTIONS['spare' .. part] = true, true
end
local function mend_fields(k)
  local said = redis.call('HGETALL', k)
  for i = 1, #said, 2 do
    local digits = string.gsub(said[i + 1], '^-', '')
    if FRACTIONS[said[i]] then digits = string.gsub(digits, '%.%d+$', '') end
    if not count_in(digits) then
      redis.call('HDEL', k, said[i])
      mended = mended + 1
    end
  end
end

mend(key('queues'), 'set')
for _, name in ipairs({'workers', 'gateways', 'retained'}) do mend(key(name), 'zset') end
mend(key('reaper'), 'hash')
mend_fields(key('reaper'))
if redis.call('HEXISTS', key('reaper'), 'retained_bytes') == 0 then
  for _, member in ipairs(redis.call('ZRANGE', key('retained'), 0, -1)) do
    redis.call('HINCRBY', key('reaper'), 'retained_bytes', bytes_of(member))
  end
end
for _, list in ipairs(KEYS) do mend(list, 'list') end

-- Names of queues: those that are known, and those that jobs name.
local jobs, queues = {}, {}
for _, queue in ipairs(redis.call('SMEMBERS', key('queues'))) do queues[queue] = {} end
for _, k in ipairs(redis.call('KEYS', key('job', '*'))) do
  local id = string.sub(k, #NS + 6)
  local queue = read_job(id, 'queue').queue
  if queue and intact(id) then
    queues[queue] = queues[queue] or {}
    table.insert(queues[queue], id)
  end
end

local function keep(set, state)
  for _, id in ipairs(redis.call('ZRANGE', set, 0, -1)) do
    local said = read_job(id, 'state').state
    if said and said ~= state then redis.call('ZREM', set, id) end
  end
end

local function rebuild(queue, ids)
  local waiting, running, stats = key('waiting', queue), key('running', queue), key('stats', queue)
  for _, name in ipairs({'waiting', 'running', 'alone', 'lanes', 'ended'}) do mend(key(name, queue), 'zset') end
  mend(key('drain', queue), 'string')
  mend(stats, 'hash')
  mend_fields(stats)
  if redis.call('HEXISTS', stats, 'turn') == 0 then redis.call('UNLINK', key('ring', queue)) end
  mend(key('ring', queue), 'zset')
  for _, line in ipairs(redis.call('ZRANGE', key('ring', queue), 0, -1)) do
    mend(key('line', queue, line), 'zset')
  end
  keep(waiting, 'waiting')
  keep(running, 'running')
  keep(key('alone', queue), 'running')
  table.sort(ids)
  local sums = {['waiting_frames:interactive'] = 0, ['waiting_frames:batch'] = 0, running_frames = 0,
    running_since_ms = 0}
  for _, id in ipairs(ids) do
    local job = read_job(id, 'state', 'line', 'seq', 'budget', 'attempt_ms', 'solo', 'deadline_ms')
    local frames = 'running_frames'
    if job.state == 'waiting' then
      frames = 'waiting_frames:' .. class_of(job.line)
      redis.call('ZADD', waiting, scored(class_of(job.line), job.seq), id)
      mend(key('line', queue, job.line), 'zset')
      join_line(id, queue, job.line, job.seq)
    else
      redis.call('ZADD', running, 'NX', now + lease, id)
      note_alone(id, queue, job)
      sums.running_since_ms = sums.running_since_ms + job.attempt_ms
    end
    sums[frames] = sums[frames] + job.budget
  end
  for name, sum in pairs(sums) do redis.call('HSET', stats, name, string.format('%.0f', sum)) end
  redis.call('HSET', stats, 'admitted', redis.call('ZCARD', waiting) + redis.call('ZCARD', running)
    + tonumber(redis.call('HGET', stats, 'ended') or '0'))
end

for queue, ids in pairs(queues) do rebuild(queue, ids) end
return mended

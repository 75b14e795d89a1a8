-- Put right what dead processes left behind in one queue. Idempotent; run it as often as you like.
-- After a silence of all reapers (Redis was away, or nobody reaped) leases and listeners don't lapse
-- for one lease time, so that their owners can renew them first.
-- KEYS: RQ's list of this queue. ARGV: ns, queue, max_attempts, lease_ms, silence_ms, batch,
--   result_ttl, metadata_ttl, cap, gap_ms (nothing to do when this queue was reaped so lately; 0:
--   always), which keeps the cost from growing with the number of workers that reap; most jobs to
--   report, of each of the two kinds
-- Returns {held, returned, lost, expired, abandoned, n, n jobs that no list holds, jobs that ended a
--   while ago and that RQ may still know}
local queue, max_attempts = ARGV[2], tonumber(ARGV[3])
local lease, silence, batch = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local most = tonumber(ARGV[11])
local now = now_ms()
local waiting, running, reaper = key('waiting', queue), key('running', queue), key('reaper')
local returned, lost, expired, abandoned = 0, 0, 0, 0

local reaped = 'last_ms:' .. queue
local since = now - tonumber(redis.call('HGET', reaper, reaped) or '0')
if since >= 0 and since < tonumber(ARGV[10]) then -- below 0, the clock was put back
  return {'0', '0', '0', '0', '0', '0'}
end

local ring = key('ring', queue)

local function finish(id, job, reason, code, message)
  local o = ending(7)
  o.reason, o.code, o.message = reason, code, message
  redis.call('HDEL', key('job', id), 'execution') -- its worker, if it lives, hears that it lost the job
  end_job(id, job, o, now)
end

redis.call('ZREMRANGEBYSCORE', key('lanes', queue), '-inf', now) -- frees first, see renew
redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', now)

local last = tonumber(redis.call('HGET', reaper, 'last_ms') or '0')
if now - last > silence then redis.call('HSET', reaper, 'hold_until_ms', now + lease) end
redis.call('HSET', reaper, 'last_ms', now, reaped, now)
-- A hold that is further off than it can be was told before the clock was put back.
local left = tonumber(redis.call('HGET', reaper, 'hold_until_ms') or '0') - now
local held = left > 0 and left <= lease

-- Leases that lapsed.
if not held then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', running, '-inf', now, 'LIMIT', 0, batch)) do
    local job = intact(id, 'running')
    redis.call('HINCRBY', key('stats', queue), 'leases_lost', 1)
    if not job then
      discard(id, queue)
    elseif job.cancel then
      finish(id, job, 'cancelled', 'cancelled', 'cancelled by the caller')
    elseif tonumber(job.attempt) >= max_attempts then
      finish(id, job, 'worker_lost', 'worker_lost', 'every worker that took the job was lost')
      lost = lost + 1
    else
      back_to_waiting(id, queue, job)
      redis.call('HINCRBY', key('stats', queue), 'retried', 1)
      returned = returned + 1
    end
  end
end

-- Deadlines that passed, and jobs that nobody listens to any more. A running job gets a moment past
-- its deadline, in which its worker ends it with what is known.
local listed = {}
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do listed[id] = true end
local missing = {}
local sums = {['waiting_frames:interactive'] = 0, ['waiting_frames:batch'] = 0, running_frames = 0,
  running_since_ms = 0}

-- Who is in which set, read once: this passes over every live job, once a second.
local function members(name)
  local set = {}
  for _, member in ipairs(redis.call('ZRANGE', name, 0, -1)) do set[member] = true end
  return set
end
local in_ring, in_line = members(ring), {}

local function is_in_line(id, line)
  if not in_line[line] then in_line[line] = members(key('line', queue, line)) end
  return in_ring[line] and in_line[line][id]
end

local function add_up(id, state, job)
  if state == 'running' then
    sums.running_frames = sums.running_frames + job.budget
    sums.running_since_ms = sums.running_since_ms + job.attempt_ms
    return
  end
  local frames = 'waiting_frames:' .. class_of(job.line)
  sums[frames] = sums[frames] + job.budget
  if not is_in_line(id, job.line) then
    join_line(id, queue, job.line, job.seq)
    in_ring[job.line] = true
  end
end

-- Whether nobody listens any more; those whose time is over are taken off.
local function is_unheard(id)
  local listeners = key('listeners', id)
  redis.call('ZREMRANGEBYSCORE', listeners, '-inf', now)
  return redis.call('EXISTS', listeners) == 0
end

local function look_at(id, state)
  local job = intact(id, state)
  local grace = state == 'running' and 500 or 0
  if not job then
    discard(id, queue)
    return
  elseif tonumber(job.deadline_ms) + grace <= now then
    finish(id, job, 'timeout', job.claimed_ms and 'generation_timeout' or 'queue_timeout',
      'the deadline passed')
    expired = expired + 1
    return
  elseif not held and not job.cancel and is_unheard(id) then
    abandon(id, job, ending(7), now)
    abandoned = abandoned + 1
    if state == 'waiting' then return end -- it has ended
  end
  add_up(id, state, job)
  if state == 'waiting' and not listed[id] and #missing < most then missing[#missing + 1] = id end
end

for _, state in ipairs({'waiting', 'running'}) do
  for _, id in ipairs(redis.call('ZRANGE', key(state, queue), 0, -1)) do look_at(id, state) end
end

-- What a damaged record left behind in the sums.
for name, sum in pairs(sums) do
  local right = string.format('%.0f', sum)
  if (redis.call('HGET', key('stats', queue), name) or '0') ~= right then
    redis.call('HSET', key('stats', queue), name, right)
  end
end

-- Kept audio that ran out.
local retained = key('retained')
for _, member in ipairs(redis.call('ZRANGEBYSCORE', retained, '-inf', now, 'LIMIT', 0, batch)) do
  redis.call('ZREM', retained, member)
  redis.call('HINCRBY', reaper, 'retained_bytes', 0 - bytes_of(member))
end

local report = {held and '1' or '0', tostring(returned), tostring(lost), tostring(expired),
  tostring(abandoned)}
report[#report + 1] = tostring(#missing)
for _, id in ipairs(missing) do report[#report + 1] = id end
local leftovers = redis.call('ZRANGEBYSCORE', key('ended', queue), '-inf', now - 2000, 'LIMIT', 0, most)
for _, id in ipairs(leftovers) do report[#report + 1] = id end
return report

-- Shared by every script: it is put in front of each before loading.
-- One truth: a live job is in exactly one of the waiting and running sets of its queue.

local NS = ARGV[1]
local MAX_MEMBERSHIP_MS = 60000 -- the most that a listener's membership may be set to last
local FRAME_BYTES = 64 + 3840 -- a frame's codes and PCM

local function key(...)
  return table.concat({NS, ...}, ':')
end

local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- HMGET as a table by field name; a missing field is nil, and so is each of a key that is no hash.
local function read_job(id, ...)
  local names = {...}
  local values = redis.pcall('HMGET', key('job', id), unpack(names))
  local job = {}
  if values.err then return job end
  for i, name in ipairs(names) do
    if values[i] then job[name] = values[i] end
  end
  return job
end

-- Tell every gateway with a listener on this job that there is news.
local function wake(id)
  local seen = {}
  for _, member in ipairs(redis.call('ZRANGE', key('listeners', id), 0, -1)) do
    local gateway = string.match(member, '^([^|]+)|')
    if gateway and not seen[gateway] then
      seen[gateway] = true
      local stream = key('wake', gateway)
      redis.call('XADD', stream, 'MAXLEN', '~', 10000, '*', 'job', id)
      redis.call('PEXPIRE', stream, 60000)
    end
  end
end

local function leave_backlog(queue, principal)
  local backlog = key('backlog', queue)
  if redis.call('HINCRBY', backlog, principal, -1) <= 0 then
    redis.call('HDEL', backlog, principal)
  end
end

-- Whether a job lives, in this state if one is named, and its record has all that the rules need.
local function intact(id, state)
  local job = read_job(id, 'state', 'queue', 'principal', 'request_id', 'payload', 'fingerprint',
    'seq', 'admitted_ms', 'deadline_ms', 'attempt', 'frames')
  local lives = job.state == 'waiting' or job.state == 'running'
  return lives and (not state or job.state == state) and job.queue and job.principal
    and job.request_id and job.payload and job.fingerprint and tonumber(job.seq)
    and tonumber(job.admitted_ms) and tonumber(job.deadline_ms) and tonumber(job.attempt)
    and tonumber(job.frames)
end

-- A live job whose record is damaged or gone can't be served and must not hold up the others. Its
-- callers hear that the queue lost it.
local function discard(id, queue)
  local waiting = key('waiting', queue)
  local job = read_job(id, 'principal', 'request_id')
  if redis.call('ZREM', waiting, id) == 1 and job.principal then
    leave_backlog(queue, job.principal)
  end
  redis.call('ZREM', key('running', queue), id)
  redis.call('UNLINK', key('job', id), key('events', id))
  if redis.call('EXISTS', waiting) == 0 then redis.call('DEL', key('backlog', queue)) end
  redis.call('ZADD', key('ended', queue), now_ms(), id)
  redis.call('HINCRBY', key('stats', queue), 'ended', 1)
  redis.call('HINCRBY', key('stats', queue), 'ended:discarded', 1)
  wake(id)
end

-- A later request with this id starts afresh.
local function unbind(id, principal, request_id)
  local rk = key('request', principal, request_id)
  if redis.call('GET', rk) == id then redis.call('DEL', rk) end
end

-- A running mean that forgets slowly: the newest sample weighs a tenth.
local function measure(stats, field, sample)
  local old = tonumber(redis.call('HGET', stats, field) or '')
  local mean = old and old + 0.1 * (sample - old) or sample
  redis.call('HSET', stats, field, string.format('%.3f', mean))
end

-- Kept audio is bounded in bytes: over the cap, the oldest goes first.
local function retain(id, bytes, now, ttl, cap)
  if bytes == 0 then return end
  local retained, reaper = key('retained'), key('reaper')
  redis.call('ZADD', retained, now + ttl, id .. '|' .. bytes)
  local total = redis.call('HINCRBY', reaper, 'retained_bytes', bytes)
  while total > cap do
    local oldest = redis.call('ZPOPMIN', retained)
    if not oldest[1] then break end
    local old_id, old_bytes = string.match(oldest[1], '^(.*)|(%d+)$')
    if old_id then
      total = redis.call('HINCRBY', reaper, 'retained_bytes', -tonumber(old_bytes))
      redis.call('UNLINK', key('events', old_id))
    end
  end
end

-- The one way an intact job ends. Frees before it writes, so that it works with Redis at its memory limit.
-- o: reason, code, message, terminal (bytes), abandoned ('1'), and the ttls result, metadata, cap.
local function end_job(id, o, now)
  local jk = key('job', id)
  local job = read_job(id, 'state', 'queue', 'principal', 'request_id', 'cancellation_id',
    'admitted_ms', 'claimed_ms', 'attempt_ms', 'first_audio_ms', 'frames', 'attempt', 'cancel')
  local queue, principal = job.queue, job.principal
  if job.cancel == 'abandoned' then o.abandoned = '1' end
  redis.call('HDEL', jk, 'payload')
  redis.call('ZREM', key('waiting', queue), id)
  redis.call('ZREM', key('running', queue), id)
  if job.state == 'waiting' then leave_backlog(queue, principal) end
  if job.cancellation_id then
    redis.call('PEXPIRE', key('turn', principal, job.cancellation_id), o.metadata_ttl)
  end

  local admitted = tonumber(job.admitted_ms)
  local frames = tonumber(job.frames)
  local waited = (tonumber(job.claimed_ms) or now) - admitted
  local first = job.first_audio_ms or ''
  local total = now - admitted
  redis.call('HSET', jk, 'state', 'ended', 'ended_ms', now, 'finish_reason', o.reason,
    'failure_code', o.code or '', 'message', o.message or '', 'terminal', o.terminal or '',
    'abandoned', o.abandoned or '0', 'queue_wait_ms', waited, 'total_ms', total)
  redis.call('XADD', key('events', id), '*', 'k', 'end', 'reason', o.reason, 'code', o.code or '',
    'message', o.message or '', 'terminal', o.terminal or '', 'abandoned', o.abandoned or '0',
    'attempt', job.attempt or '0', 'queue_wait_ms', waited, 'first_audio_ms', first,
    'total_ms', total)
  wake(id)

  -- Whoever counts as listening finds the answer, however short results are kept for others: its
  -- gateway may stand still for a while.
  local last = redis.call('ZREVRANGE', key('listeners', id), 0, 0, 'WITHSCORES')[2]
  local heard = math.min((tonumber(last or '') or now) - now, MAX_MEMBERSHIP_MS)
  local kept = math.max(o.result_ttl, heard)
  redis.call('PEXPIRE', key('listeners', id), kept)
  if o.abandoned == '1' then
    redis.call('UNLINK', key('events', id))
    redis.call('PEXPIRE', jk, o.result_ttl)
    unbind(id, principal, job.request_id)
  else
    redis.call('PEXPIRE', key('events', id), kept)
    redis.call('PEXPIRE', jk, o.metadata_ttl)
    local rk = key('request', principal, job.request_id)
    if redis.call('GET', rk) == id then redis.call('PEXPIRE', rk, o.metadata_ttl) end
    retain(id, frames * FRAME_BYTES, now, o.result_ttl, o.cap)
  end
  redis.call('ZADD', key('ended', queue), now, id)

  local stats = key('stats', queue)
  redis.call('HINCRBY', stats, 'ended', 1)
  redis.call('HINCRBY', stats, 'ended:' .. o.reason, 1)
  if job.state == 'running' and (o.reason == 'stop' or o.reason == 'length') then
    measure(stats, 'service_ms', now - (tonumber(job.attempt_ms or '') or now))
  end
end

-- Nobody listens any more: stop the work, and let a retry with the same id start afresh.
local function abandon(id, o, now)
  local job = read_job(id, 'state', 'principal', 'request_id')
  unbind(id, job.principal, job.request_id)
  if job.state == 'waiting' then
    o.reason, o.code, o.abandoned = 'cancelled', 'cancelled', '1'
    o.message = 'every caller left before the job was claimed'
    end_job(id, o, now)
  elseif job.state == 'running' then
    redis.call('HSET', key('job', id), 'cancel', 'abandoned')
  end
end

-- A running job goes back to its old place, in front of all that came later.
local function back_to_waiting(id, queue, principal)
  local jk = key('job', id)
  redis.call('ZREM', key('running', queue), id)
  redis.call('HSET', jk, 'state', 'waiting')
  redis.call('HDEL', jk, 'execution', 'worker_id')
  redis.call('ZADD', key('waiting', queue), redis.call('HGET', jk, 'seq'), id)
  redis.call('HINCRBY', key('backlog', queue), principal, 1)
end

-- Lanes of the ready workers of a queue whose registration has not lapsed.
local function ready_lanes(queue, now)
  local lanes = 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key('lanes', queue), now, '+inf')) do
    lanes = lanes + (tonumber(string.match(member, '|(%d+)$') or '') or 0)
  end
  return lanes
end

-- Milliseconds until a lane is free for the next in line: what the running still need, and those
-- ahead at the measured mean, over the lanes. 0 while a lane is free or nothing was measured yet.
local function estimated_wait(queue, lanes, now)
  local running = redis.call('ZRANGE', key('running', queue), 0, -1)
  local waiting = redis.call('ZCARD', key('waiting', queue))
  local mean = tonumber(redis.call('HGET', key('stats', queue), 'service_ms') or '0')
  if lanes == 0 or mean == 0 or #running + waiting < lanes then return 0 end
  local rest = 0
  for _, id in ipairs(running) do
    local since = tonumber(read_job(id, 'attempt_ms').attempt_ms or '') or now
    rest = rest + math.max(mean - (now - since), 0.1 * mean)
  end
  return math.floor((rest + waiting * mean) / lanes)
end

-- What end_job needs of the settings, from three arguments in a row.
local function ending(first)
  return {result_ttl = tonumber(ARGV[first]), metadata_ttl = tonumber(ARGV[first + 1]),
    cap = tonumber(ARGV[first + 2])}
end

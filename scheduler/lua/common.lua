-- Shared by the scripts: what one of them uses is put in front of it before loading. So each definition
-- begins a line with `local`, and names one thing.
-- One truth: a live job is in exactly one of the waiting and running sets of its queue.

local NS = ARGV[1]
local MAX_MEMBERSHIP_MS = 60000 -- the most that a listener's membership may be set to last
local LIVE_MS = 3600000 -- a live job's keys last so long past its deadline, should nobody end it
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

-- A number as Redis counts with it: no sign, no fraction. Else nil. What is taken off a count is written
-- 0 - n, since -n of 0 is "-0", which Redis takes for no number.
local function count_in(text)
  return text and string.match(text, '^%d+$') and #text < 16 and tonumber(text) or nil
end

-- How many bytes a member of the kept audio stands for.
local function bytes_of(member)
  return count_in(string.match(member, '|(%d+)$')) or 0
end

-- Whether a key may be used as what it is for: somebody may have put something else there.
local function holds(k, kind)
  local found = redis.call('TYPE', k)
  found = found.ok or found
  return found == kind or found == 'none'
end

-- As redis.call, but nil where another kind of value is in the key's place.
local function call_if_sound(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not string.find(tostring(reply.err), 'WRONGTYPE', 1, true) then return redis.call(...) end
  return nil
end

-- Note in news, by gateway, that a job has some for whoever listens to it there.
local function gather(news, id)
  for _, member in ipairs(redis.pcall('ZRANGE', NS .. ':listeners:' .. id, 0, -1)) do
    local gateway = string.match(member, '^([^|]+)|')
    if gateway then
      local jobs = news[gateway]
      if not jobs then
        news[gateway] = {id}
      elseif jobs[#jobs] ~= id then -- not told for another caller of this job
        jobs[#jobs + 1] = id
      end
    end
  end
end

-- Tell every gateway which jobs have news for it: one entry each, however many they are.
local function tell(news)
  for gateway, jobs in pairs(news) do
    local stream = key('wake', gateway)
    call_if_sound('XADD', stream, 'MAXLEN', '~', 10000, '*', 'jobs', table.concat(jobs, ' '))
    redis.call('PEXPIRE', stream, 60000)
  end
end

-- Which gateways listen to a job is kept in its record too, where the writers of frames find it.
local function note_gateways(id)
  local seen, names = {}, {}
  for _, member in ipairs(redis.pcall('ZRANGE', key('listeners', id), 0, -1)) do
    local gateway = string.match(member, '^([^|]+)|')
    if gateway and not seen[gateway] then names[#names + 1] = gateway end
    seen[gateway or ''] = true
  end
  redis.call('HSET', key('job', id), 'gateways', table.concat(names, ' '))
end

local function wake(id)
  local news = {}
  gather(news, id)
  tell(news)
end

-- The order of claims within a queue: class first, then round-robin between principals, then first in
-- first out. Each principal has a line per class, a zset of its waiting jobs by admission. The ring
-- holds the lines that aren't empty, by class and then by turn. A claim takes the head of the first
-- line and puts the line at the end of its class's part of the ring; a line that was empty joins there.
-- So between two turns of a line every other line of its class has at most one: with k of them, the
-- n-th job of a line is claimed after at most n * k claims, however many jobs the others have. A job
-- that is cancelled, expires or moves costs its line no turn. What was handed back or lost keeps its
-- place: it stands in the line of its class that belongs to nobody, whose turn is always the first.
-- The lines hold just what the waiting set holds, in another order; the reaper mends them from it.
local CLASS = {interactive = 0, batch = 2 ^ 51}
local CLASSES = {'interactive', 'batch'}
local BATCH_FIRST = string.format('%.0f', CLASS.batch)

local function scored(class, number)
  return string.format('%.0f', CLASS[class] + number)
end

local function class_of(line)
  return string.match(line, '^(%a+):')
end

local function is_returned(line)
  return string.match(line, '^%a+:$') ~= nil
end

local function join_line(id, queue, line, seq)
  local ring = key('ring', queue)
  redis.call('ZADD', key('line', queue, line), seq, id)
  if redis.call('ZSCORE', ring, line) then return end
  local turn = is_returned(line) and 0 or redis.call('HINCRBY', key('stats', queue), 'turn', 1)
  redis.call('ZADD', ring, scored(class_of(line), turn), line)
end

local function leave_line(id, queue, line)
  local members = key('line', queue, line)
  redis.call('ZREM', members, id)
  if redis.call('EXISTS', members) == 0 then redis.call('ZREM', key('ring', queue), line) end
end

-- What waits and what runs is summed up as it changes, in frames that callers allowed for, so that
-- an admission reads no other job. job: line, seq, budget; for running ones budget and attempt_ms.
local function enter_waiting(id, queue, job)
  local class = class_of(job.line)
  redis.call('ZADD', key('waiting', queue), scored(class, job.seq), id)
  join_line(id, queue, job.line, job.seq)
  redis.call('HINCRBY', key('stats', queue), 'waiting_frames:' .. class, job.budget)
end

local function leave_waiting(id, queue, job)
  if redis.call('ZREM', key('waiting', queue), id) == 0 then return end
  leave_line(id, queue, job.line)
  redis.call('HINCRBY', key('stats', queue), 'waiting_frames:' .. class_of(job.line), 0 - job.budget)
end

local function enter_running(id, queue, job, expiry)
  redis.call('ZADD', key('running', queue), expiry, id)
  redis.call('HINCRBY', key('stats', queue), 'running_frames', job.budget)
  redis.call('HINCRBY', key('stats', queue), 'running_since_ms', job.attempt_ms)
end

local function leave_running(id, queue, job)
  if redis.call('ZREM', key('running', queue), id) == 0 then return end
  if job.execution then redis.call('UNLINK', key('claim', job.execution)) end
  redis.call('HINCRBY', key('stats', queue), 'running_frames', 0 - job.budget)
  redis.call('HINCRBY', key('stats', queue), 'running_since_ms', 0 - job.attempt_ms)
end

-- What a live job's record can't be without, and what a look at it asks for; and all of it that any rule
-- asks for.
local LOOK = {'state', 'queue', 'principal', 'request_id', 'payload', 'fingerprint', 'seq', 'admitted_ms',
  'deadline_ms', 'attempt', 'frames', 'line', 'budget', 'attempt_ms', 'cancel', 'claimed_ms'}
local RECORD = {'execution', 'first_audio_ms', 'cancellation_id', 'solo', 'wait_bound_ms',
  'expected_wait_ms', 'drained_by', 'drained_until_ms', 'worker_id', unpack(LOOK)}

-- The record of a job that lives, in this state if one is named; nil if it has not all that the rules
-- need, its events and listeners included. fields: LOOK, or all.
local function intact(id, state, fields)
  local job = read_job(id, unpack(fields or RECORD))
  local lives = job.state == 'waiting' or job.state == 'running'
  local whole = lives and (not state or job.state == state) and job.queue and job.principal
    and job.request_id and job.payload and job.fingerprint and count_in(job.seq)
    and count_in(job.admitted_ms) and count_in(job.deadline_ms) and count_in(job.attempt)
    and count_in(job.frames) and count_in(job.budget) and CLASS[class_of(job.line or '') or '']
    and (job.state == 'waiting' or count_in(job.attempt_ms))
    and holds(key('events', id), 'stream') and holds(key('listeners', id), 'zset')
  return whole and job or nil
end

-- A live job whose record is damaged or gone can't be served and must not hold up the others. Its
-- callers hear that the queue lost it. Which line it stood in may not be known any more; the sums are
-- put right by the next reap, which looks at all jobs at once for it.
local function discard(id, queue)
  redis.call('ZREM', key('waiting', queue), id)
  redis.call('ZREM', key('running', queue), id)
  for _, line in ipairs(redis.call('ZRANGE', key('ring', queue), 0, -1)) do
    leave_line(id, queue, line)
  end
  redis.call('UNLINK', key('job', id), key('events', id))
  redis.call('HSET', key('reaper'), 'unsure:' .. queue, 1)
  redis.call('ZADD', key('ended', queue), now_ms(), id)
  redis.call('HINCRBY', key('stats', queue), 'ended', 1)
  redis.call('HINCRBY', key('stats', queue), 'ended:discarded', 1)
  wake(id)
  redis.call('UNLINK', key('listeners', id))
end

-- A later request with this id starts afresh.
local function unbind(id, principal, request_id)
  local rk = key('request', principal, request_id)
  if call_if_sound('GET', rk) == id then redis.call('DEL', rk) end
end

-- Running means that forget slowly: the newest sample weighs a tenth. samples: field, value, ...
local function measure(stats, samples)
  local fields, means = {}, {}
  for i = 1, #samples, 2 do fields[#fields + 1] = samples[i] end
  for i, old in ipairs(redis.call('HMGET', stats, unpack(fields))) do
    local sample, mean = samples[2 * i], tonumber(old or '')
    means[#means + 1] = fields[i]
    means[#means + 1] = string.format('%.3f', mean and mean + 0.1 * (sample - mean) or sample)
  end
  redis.call('HSET', stats, unpack(means))
end

-- Kept audio is bounded in bytes: over the cap, the oldest goes first. What somebody still listens to
-- stays, and goes when the next job ends.
local function retain(id, bytes, now, ttl, cap)
  if bytes == 0 then return end
  local retained, reaper = key('retained'), key('reaper')
  redis.call('ZADD', retained, now + ttl, id .. '|' .. bytes)
  local total = redis.call('HINCRBY', reaper, 'retained_bytes', bytes)
  local heard = {}
  while total > cap do
    local oldest = redis.call('ZPOPMIN', retained)
    if not oldest[1] then break end
    local old_id = string.match(oldest[1], '^(.*)|%d+$')
    if old_id and (call_if_sound('ZCOUNT', key('listeners', old_id), now, '+inf') or 0) > 0 then
      heard[#heard + 1] = oldest
    else
      total = redis.call('HINCRBY', reaper, 'retained_bytes', 0 - bytes_of(oldest[1]))
      if old_id then redis.call('UNLINK', key('events', old_id)) end
    end
  end
  for _, kept in ipairs(heard) do redis.call('ZADD', retained, kept[2], kept[1]) end
end

-- The one way an intact job ends. Frees before it writes, so that it works with Redis at its memory limit.
-- o: reason, code, message, terminal (bytes), abandoned ('1'), and the ttls result, metadata, cap.
-- job: its record.
local function end_job(id, job, o, now)
  local jk = key('job', id)
  local queue, principal = job.queue, job.principal
  if job.cancel == 'abandoned' then o.abandoned = '1' end
  leave_waiting(id, queue, job)
  leave_running(id, queue, job)
  redis.call('HDEL', jk, 'payload')
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
    if call_if_sound('GET', rk) == id then redis.call('PEXPIRE', rk, o.metadata_ttl) end
  end
  redis.call('ZADD', key('ended', queue), now, id)

  local stats = key('stats', queue)
  redis.call('HINCRBY', stats, 'ended', 1)
  redis.call('HINCRBY', stats, 'ended:' .. o.reason, 1)
  if job.state == 'running' and frames > 0 and job.claimed_ms == job.attempt_ms -- claimed once
    and (o.reason == 'stop' or o.reason == 'length') then
    measure(stats, {'service_ms', now - job.attempt_ms, 'service_frames', frames,
      'service_budget', tonumber(job.budget)})
  end
  if o.abandoned ~= '1' then retain(id, frames * FRAME_BYTES, now, o.result_ttl, o.cap) end
end

-- Nobody listens any more: stop the work, and let a retry with the same id start afresh. What its caller
-- has cancelled is stopped already, and a retry of it is its replay.
local function abandon(id, job, o, now)
  if job.cancel then return end
  unbind(id, job.principal, job.request_id)
  if job.state == 'waiting' then
    o.reason, o.code, o.abandoned = 'cancelled', 'cancelled', '1'
    o.message = 'every caller left before the job was claimed'
    end_job(id, job, o, now)
  elseif job.state == 'running' then
    redis.call('HSET', key('job', id), 'cancel', 'abandoned')
  end
end

-- A running job goes back to its old place, in front of all of its class that were never claimed.
local function back_to_waiting(id, queue, job)
  local jk = key('job', id)
  leave_running(id, queue, job)
  job.line = class_of(job.line) .. ':'
  redis.call('HDEL', jk, 'execution', 'worker_id')
  redis.call('HSET', jk, 'state', 'waiting', 'line', job.line)
  enter_waiting(id, queue, job)
end

-- Lanes of the ready workers of a queue whose registration has not lapsed.
local function ready_lanes(queue, now)
  local lanes = 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key('lanes', queue), now, '+inf')) do
    lanes = lanes + (tonumber(string.match(member, '|(%d+)$') or '') or 0)
  end
  return lanes
end

-- Milliseconds of service that a frame of a job's budget stands for: as measured over ended jobs, which
-- don't all use their budgets up; before any has ended, a whole step as the workers measured it while
-- they warmed up. nil: nobody knows.
local function budget_frame_ms(stats)
  local said = redis.call('HMGET', stats, 'service_ms', 'service_budget', 'warm_step_ms')
  if said[1] and said[2] then return tonumber(said[1]) / tonumber(said[2]) end
  return tonumber(said[3] or '')
end

-- How many frames go before the next job of this class and principal (nil: whoever comes last): all of
-- the better class, and of its own at most what the turns of the lines let pass.
local function frames_before(queue, class, principal, same)
  local said = redis.call('HMGET', key('stats', queue), 'waiting_frames:interactive',
    'waiting_frames:' .. class)
  local better = class == 'batch' and tonumber(said[1] or '0') or 0
  local frames = tonumber(said[2] or '0')
  if not principal or same == 0 then return better + frames end
  local function in_line(owner) return redis.call('ZCARD', key('line', queue, class .. ':' .. owner)) end
  local returned, own = in_line(''), in_line(principal)
  local others = redis.call('ZCOUNT', key('ring', queue), scored(class, 0),
    '(' .. scored(class, CLASS.batch)) - (own > 0 and 1 or 0) - (returned > 0 and 1 or 0)
  local before = math.min(same, returned + own + others * (own + 1))
  return better + frames * before / same
end

-- Milliseconds until it is the turn of the next job of this class and principal, as three numbers.
-- bound: what the running still need and what those need that go before it, over the lanes; too long by
-- what other lanes still have to do when the job starts. expected: the bound less what bounds were too
-- long by on the mean, as measured over jobs that had to wait. sure: the bound less what 49 of 50 bounds
-- were too long by at least, and half a usual error on top, as the job's own time is an estimate too. A
-- deadline is held against that, since a refusal at once is better than a timeout later. All 0 while a
-- lane is free or nothing was measured yet.
local function estimated_wait(queue, lanes, now, class, principal)
  local stats, waiting = key('stats', queue), key('waiting', queue)
  local running = redis.call('ZCARD', key('running', queue))
  local better = class == 'batch' and redis.call('ZCOUNT', waiting, '-inf', '(' .. BATCH_FIRST) or 0
  local same = (class == 'batch' and redis.call('ZCARD', waiting)
    or redis.call('ZCOUNT', waiting, '-inf', '(' .. BATCH_FIRST)) - better
  local frame_ms = budget_frame_ms(stats)
  if lanes == 0 or not frame_ms or running + better + same < lanes then return 0, 0, 0 end

  local said = redis.call('HMGET', stats, 'running_frames', 'running_since_ms', 'wait_over_ms',
    'wait_spare_ms', 'wait_error_ms')
  local needed = tonumber(said[1] or '0') * frame_ms
  local rest = math.max(needed - (running * now - tonumber(said[2] or '0')), 0.1 * needed)
  local bound = (rest + frames_before(queue, class, principal, same) * frame_ms) / lanes
  local function less(what) return math.max(0, bound - math.max(0, tonumber(what or '0'))) end
  local sure = math.min(bound, less(said[4]) + tonumber(said[5] or '0') / 2)
  return math.floor(bound), math.floor(less(said[3])), math.floor(sure)
end

-- What end_job needs of the settings, from three arguments in a row.
local function ending(first)
  return {result_ttl = tonumber(ARGV[first]), metadata_ttl = tonumber(ARGV[first + 1]),
    cap = tonumber(ARGV[first + 2])}
end

-- How a job ends, and what is kept of it.

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

-- What the door held against an interactive job's deadline, against what came true. One that ran out of
-- time would have taken longer than it was let. A second attempt, or a cancel, says nothing of the door.
local function record_total(job, reason, total, now)
  local told = tonumber(job.total_bound_ms or '') or 0
  local finished = job.state == 'running' and (reason == 'stop' or reason == 'length')
  if told == 0 or not (finished or reason == 'timeout') then return end
  if job.claimed_ms and (job.state ~= 'running' or job.claimed_ms ~= job.attempt_ms) then return end
  if class_of(job.line) ~= 'interactive' or not was_served(job.queue, now - total, now) then return end
  add_to_spread(key('stats', job.queue), 'spare', told - total, now)
end

-- So much the newest job weighs in what a frame of a budget stands for, once there were so many: what
-- part of its budget a job speaks is chance, and every wait is told by it.
local PACE = 0.02

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
  local waited = ms_since(admitted, tonumber(job.claimed_ms) or now)
  local first = job.first_audio_ms or ''
  local total = ms_since(admitted, now)
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
    and (o.reason == 'stop' or o.reason == 'length')
    and was_served(queue, tonumber(job.attempt_ms), now) then
    local newest = math.max(PACE, 1 / redis.call('HINCRBY', stats, 'measured', 1))
    measure(stats, newest, {'service_ms', now - job.attempt_ms, 'service_frames', frames,
      'service_budget', tonumber(job.budget)})
  end
  record_total(job, o.reason, now - admitted, now)
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

-- What end_job needs of the settings, from three arguments in a row.
local function ending(first)
  return {result_ttl = tonumber(ARGV[first]), metadata_ttl = tonumber(ARGV[first + 1]),
    cap = tonumber(ARGV[first + 2])}
end

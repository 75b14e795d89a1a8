-- Move the next waiting job to running under a lease. The id that RQ handed over says only that there is
-- work: which job is next is decided here, by the ring of lines (see common/lines).
-- Jobs that have to run alone may hold up only one worker that is busy: the one that met them first, which
-- takes nothing more until its lanes are free. Other busy workers pass them over, idle ones take one. After
-- each of them so many other jobs have their turn as the queue has lanes, if there are any.
-- KEYS: RQ's list of this queue. ARGV: ns, queue, worker, execution, hint, lease_ms,
--   busy lanes of this worker, result_ttl, metadata_ttl, cap
-- Returns {} (nothing to do), {'solo'} (this worker is busy and all it may take must run alone), or
--   {job, payload, attempt, remaining_ms, queue_wait_ms, frames, solo}
local queue, worker, execution, hint = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local lease, busy = tonumber(ARGV[6]), tonumber(ARGV[7])
local now = now_ms()
local waiting, ring, stats = key('waiting', queue), key('ring', queue), key('stats', queue)
local ours = key('claim', execution)
local CLAIM_MS = 60000 -- a claim is known so long past its job's deadline: longer than the job lives

local function claimed(id, job)
  return {id, job.payload, tostring(job.attempt), tostring(tonumber(job.deadline_ms) - now),
    tostring(ms_since(job.admitted_ms, job.claimed_ms)), job.frames, job.solo or '0'}
end

-- The line has had its turn. That of the returned stays in front.
local function rotate(line)
  if is_returned(line) or not redis.call('ZSCORE', ring, line) then return end
  local class, turn = class_of(line), redis.call('HINCRBY', stats, 'turn', 1)
  if line == class .. ALONE then turn = turn + ready_lanes(queue, now) end
  redis.call('ZADD', ring, scored(class, turn), line)
end

-- What an interactive job was told at the door, held against what it had to wait.
local function record_wait(job)
  local bound, expected = tonumber(job.wait_bound_ms or ''), tonumber(job.expected_wait_ms or '')
  if job.claimed_ms or not bound or not expected or bound == 0 then return end
  local admitted = tonumber(job.admitted_ms)
  if class_of(job.line) ~= 'interactive' or not was_served(queue, admitted, now) then return end
  local waited = now - admitted
  add_to_spread(stats, 'wait_over', bound - waited, now)
  measure(stats, 0.1, {'wait_error_ms', math.abs(expected - waited), 'wait_bias_ms', expected - waited})
end

local function take(id, job)
  local attempt = tonumber(job.attempt) + 1
  local first = tonumber(job.claimed_ms) or now
  leave_waiting(id, queue, job)
  rotate(job.line)
  record_wait(job)
  job.attempt, job.claimed_ms, job.attempt_ms = attempt, first, now
  enter_running(id, queue, job, now + lease)
  redis.call('HSET', key('job', id), 'state', 'running', 'attempt', attempt, 'claimed_ms', first,
    'attempt_ms', now, 'execution', execution, 'worker_id', worker)
  redis.call('SET', ours, id, 'PX', job.deadline_ms - now + CLAIM_MS)
  redis.call('XADD', key('events', id), '*', 'k', 'claimed', 'attempt', attempt, 'worker', worker,
    'queue_wait_ms', ms_since(job.admitted_ms, first), 'admitted_ms', job.admitted_ms)
  redis.call('PEXPIRE', key('events', id), job.deadline_ms - now + LIVE_MS)
  wake(id)
  -- The list holds a hint for each waiting job: the one that was used up is put back, ours is taken. One
  -- that stood for no waiting job is used up instead of ours.
  local is_needed = id ~= hint and redis.call('ZSCORE', waiting, hint)
  if is_needed or hint == '' then redis.call('LREM', KEYS[1], 1, id) end
  if is_needed then redis.call('LPUSH', KEYS[1], hint) end
end

-- The same call again after a lost reply finds its claim, however late, unless the reaper took the job.
local again = redis.call('GET', ours)
local mine = again and intact(again, 'running')
if mine and mine.execution == execution then
  redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', now) -- frees first, see renew
  redis.call('ZADD', key('running', queue), now + lease, again)
  return claimed(again, mine)
end

-- Whether another worker makes itself free for what runs alone; else this one does so from now on.
local function leaves_to_another()
  local drain = key('drain', queue)
  local by = redis.call('GET', drain)
  if by and by ~= worker then return true end
  redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', now) -- frees first, see renew
  redis.call('SET', drain, worker, 'PX', lease)
  return false
end

local passed = 0 -- so many lines were passed over
while true do
  local line = redis.call('ZRANGE', ring, passed, passed)[1]
  if not line then return passed > 0 and {'solo'} or {} end
  local id = redis.call('ZRANGE', key('line', queue, line), 0, 0)[1]
  if not id then
    redis.call('ZREM', ring, line)
  else
    local job = intact(id, 'waiting')
    if not job then
      discard(id, queue)
      leave_line(id, queue, line)
    elseif tonumber(job.deadline_ms) <= now then
      local o = ending(8)
      o.reason = 'timeout'
      o.code = job.claimed_ms and 'generation_timeout' or 'queue_timeout'
      o.message = 'the deadline passed while the job was waiting'
      end_job(id, job, o, now)
    elseif job.solo and busy > 0 then
      if not leaves_to_another() then return {'solo'} end
      passed = passed + 1
    else
      take(id, job)
      return claimed(id, job)
    end
  end
end

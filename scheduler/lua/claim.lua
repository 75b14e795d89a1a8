-- Move the first waiting job to running under a lease. The id that RQ handed over says only that
-- there is work: which job is next is decided here.
-- KEYS: RQ's list of this queue. ARGV: ns, queue, worker, execution, hint, lease_ms,
--   busy lanes of this worker, result_ttl, metadata_ttl, cap
-- Returns {} (nothing to do), {'solo'} (the next must run alone and this worker is busy), or
--   {job, payload, attempt, remaining_ms, queue_wait_ms, frames, solo}
local queue, worker, execution, hint = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local lease, busy = tonumber(ARGV[6]), tonumber(ARGV[7])
local now = now_ms()
local waiting = key('waiting', queue)
local ours = key('claim', execution)

local function claimed(id)
  local job = read_job(id, 'payload', 'attempt', 'deadline_ms', 'admitted_ms', 'claimed_ms', 'frames',
    'solo')
  return {id, job.payload, job.attempt, tostring(tonumber(job.deadline_ms) - now),
    tostring(tonumber(job.claimed_ms) - tonumber(job.admitted_ms)), job.frames, job.solo or '0'}
end

local function take(id, job)
  local attempt = tonumber(job.attempt) + 1
  local first = tonumber(job.claimed_ms) or now
  redis.call('ZREM', waiting, id)
  leave_backlog(queue, job.principal)
  redis.call('ZADD', key('running', queue), now + lease, id)
  redis.call('HSET', key('job', id), 'state', 'running', 'attempt', attempt, 'claimed_ms', first,
    'attempt_ms', now, 'execution', execution, 'worker_id', worker)
  redis.call('SET', ours, id, 'PX', lease)
  redis.call('XADD', key('events', id), '*', 'k', 'claimed', 'attempt', attempt, 'worker', worker,
    'queue_wait_ms', first - tonumber(job.admitted_ms))
  wake(id)
  if id ~= hint then
    -- The list holds each waiting job once: the hint that was used up is put back, ours is taken.
    redis.call('LREM', KEYS[1], 1, id)
    if redis.call('ZSCORE', waiting, hint) then redis.call('LPUSH', KEYS[1], hint) end
  end
end

-- The same call again after a lost reply finds its claim.
local again = redis.call('GET', ours)
if again and redis.call('HGET', key('job', again), 'execution') == execution then
  if redis.call('HGET', key('job', again), 'state') == 'running' then return claimed(again) end
end

while true do
  local id = redis.call('ZRANGE', waiting, 0, 0)[1]
  if not id then return {} end
  local job = read_job(id, 'payload', 'deadline_ms', 'attempt', 'admitted_ms', 'claimed_ms', 'solo',
    'principal')
  if not intact(id, 'waiting') then
    discard(id, queue)
  elseif tonumber(job.deadline_ms) <= now then
    local o = ending(8)
    o.reason = 'timeout'
    o.code = job.claimed_ms and 'generation_timeout' or 'queue_timeout'
    o.message = 'the deadline passed while the job was waiting'
    end_job(id, o, now)
  elseif job.solo and busy > 0 then
    return {'solo'}
  else
    take(id, job)
    return claimed(id)
  end
end

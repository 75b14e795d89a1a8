-- A worker gives a job back to the front. ARGV: ns, job, execution, fault ('1': the attempt counts
--   and the job runs alone next time; '0': draining, which is no attempt), max_attempts,
--   result_ttl, metadata_ttl, cap
-- Returns waiting | ended | lost
local id, execution, fault = ARGV[2], ARGV[3], ARGV[4]
local now = now_ms()
local job = intact(id, 'running')
if not job or job.execution ~= execution then return 'lost' end -- or the reaper discards it
local attempt = tonumber(job.attempt)
local o = ending(6)
if job.cancel then
  o.reason, o.code, o.message = 'cancelled', 'cancelled', 'cancelled by the caller'
  end_job(id, job, o, now)
  return 'ended'
end
if fault == '1' and attempt >= tonumber(ARGV[5]) then
  o.reason, o.code = 'worker_lost', 'worker_lost'
  o.message = 'every worker that took the job failed'
  end_job(id, job, o, now)
  return 'ended'
end
leave_running(id, job.queue, job) -- frees first, see renew
if fault == '1' then
  job.solo = '1'
  redis.call('HINCRBY', key('stats', job.queue), 'retried', 1)
else
  redis.call('HINCRBY', key('job', id), 'attempt', -1)
end
back_to_waiting(id, job.queue, job)
return 'waiting'

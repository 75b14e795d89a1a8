-- Renew leases. ARGV: ns, queue, lease_ms, then per lane: job, execution
-- Returns per lane: ok | cancelled | lost. A lease that was lost is never taken back here.
local queue, lease = ARGV[2], tonumber(ARGV[3])
local now = now_ms()
local verdicts = {}
-- A write that frees comes first: leases hold with Redis at its memory limit, too.
redis.call('ZREMRANGEBYSCORE', key('lanes', queue), '-inf', now)
for i = 4, #ARGV, 2 do
  local job = read_job(ARGV[i], 'state', 'execution', 'cancel')
  if job.state ~= 'running' or job.execution ~= ARGV[i + 1] then
    verdicts[#verdicts + 1] = 'lost'
  else
    redis.call('ZADD', key('running', queue), now + lease, ARGV[i])
    verdicts[#verdicts + 1] = job.cancel and 'cancelled' or 'ok'
  end
end
return verdicts

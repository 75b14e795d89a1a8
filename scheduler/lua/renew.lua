-- Renew leases. ARGV: ns, queue, lease_ms, then per lane: job, execution
-- Returns per lane: ok | cancelled | lost. A lease that was lost is never taken back here.
local queue, lease = ARGV[2], tonumber(ARGV[3])
local now = now_ms()
local expiry = string.format('%.0f', now + lease)
local verdicts, renewed = {}, {}
-- A write that frees comes first: leases hold with Redis at its memory limit, too.
redis.call('ZREMRANGEBYSCORE', key('lanes', queue), '-inf', now)
for i = 4, #ARGV, 2 do
  local known = redis.pcall('HMGET', NS .. ':job:' .. ARGV[i], 'state', 'execution', 'cancel')
  if known[1] ~= 'running' or known[2] ~= ARGV[i + 1] then
    verdicts[#verdicts + 1] = 'lost'
  else
    renewed[#renewed + 1] = expiry
    renewed[#renewed + 1] = ARGV[i]
    verdicts[#verdicts + 1] = known[3] and 'cancelled' or 'ok'
  end
end
if #renewed > 0 then redis.call('ZADD', key('running', queue), unpack(renewed)) end
return verdicts

-- Renew one gateway's memberships. ARGV: ns, listener_ttl, then per caller: job, listener
-- Returns per caller: the job's state, or '' for a job that Redis doesn't know.
local ttl = tonumber(ARGV[2])
local now = now_ms()
local states = {}
for i = 3, #ARGV, 2 do
  local state = redis.call('HGET', key('job', ARGV[i]), 'state') or ''
  if state == 'waiting' or state == 'running' then
    redis.call('ZADD', key('listeners', ARGV[i]), now + ttl, ARGV[i + 1])
  end
  states[#states + 1] = state
end
return states

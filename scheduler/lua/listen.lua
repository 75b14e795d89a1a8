-- A gateway says that it lives and how many callers wait with it, and renews their memberships.
-- ARGV: ns, listener_ttl, gateway, callers, then per membership: job, listener
-- Returns per membership 1, or 0 when nothing more will come: Redis doesn't know the job, it has ended, or
-- it was abandoned while this gateway was silent for too long. Who had lapsed was not told of its end.
local ttl, gateway = tonumber(ARGV[2]), ARGV[3]
local now = now_ms()
local answers = {}
redis.call('ZREMRANGEBYSCORE', key('gateways'), '-inf', now) -- frees first, see renew
redis.call('SET', key('gateway', gateway), now .. '|' .. ARGV[4], 'PX', ttl)
redis.call('ZADD', key('gateways'), now + ttl, gateway)
redis.call('PEXPIRE', key('gateways'), ttl)
for i = 5, #ARGV, 2 do
  local id = ARGV[i]
  local job = read_job(id, 'state', 'cancel')
  local live = job.state == 'waiting' or job.state == 'running'
  if live and job.cancel ~= 'abandoned' then
    local added = call_if_sound('ZADD', key('listeners', id), now + ttl, ARGV[i + 1])
    if added == 1 then note_gateways(id) end -- it had lapsed
    answers[#answers + 1] = added and 1 or 0 -- or the reaper discards it
  else
    answers[#answers + 1] = 0
  end
end
return answers

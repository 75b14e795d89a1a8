-- Renew one gateway's memberships. ARGV: ns, listener_ttl, then per caller: job, listener
-- Returns per caller 1, or 0 when nothing more will come: Redis doesn't know the job, or it was
-- abandoned while this gateway was silent for too long.
local ttl = tonumber(ARGV[2])
local now = now_ms()
local answers = {}
redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', now) -- frees first, see renew
for i = 3, #ARGV, 2 do
  local id = ARGV[i]
  local job = read_job(id, 'state', 'cancel')
  local live = job.state == 'waiting' or job.state == 'running'
  if live and job.cancel ~= 'abandoned' then
    redis.call('ZADD', key('listeners', id), now + ttl, ARGV[i + 1])
    answers[#answers + 1] = 1
  else
    answers[#answers + 1] = live and 0 or redis.call('EXISTS', key('events', id))
  end
end
return answers

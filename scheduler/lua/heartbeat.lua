-- A worker says that it is alive, and with how many lanes it takes jobs (0: none now).
-- ARGV: ns, worker, queue ('' while it has no artifact), lanes, ttl_ms, document,
--   step_ms (what a step took while it warmed up; '': not known)
local worker, queue, lanes, ttl = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', now) -- frees first, see renew
redis.call('SET', key('worker', worker), now .. '|' .. ARGV[6], 'PX', ttl)
redis.call('ZADD', key('workers'), now + ttl, worker)
if queue == '' then return end
redis.call('SADD', key('queues'), queue)
local registered = key('lanes', queue)
for _, member in ipairs(redis.call('ZRANGE', registered, 0, -1)) do
  if string.match(member, '^(.*)|%d+$') == worker and member ~= worker .. '|' .. lanes then
    redis.call('ZREM', registered, member)
  end
end
if ARGV[7] ~= '' then redis.call('HSET', key('stats', queue), 'warm_step_ms', ARGV[7]) end
if lanes > 0 then
  redis.call('ZADD', registered, now + ttl, worker .. '|' .. lanes)
end

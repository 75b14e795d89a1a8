-- A caller stops listening; when it was the last, the job is abandoned. ARGV: ns, job, listener,
--   result_ttl, metadata_ttl, cap
-- Returns listening | abandoned | ended
local id = ARGV[2]
local now = now_ms()
redis.call('ZREM', key('listeners', id), ARGV[3])
local state = redis.call('HGET', key('job', id), 'state')
if state ~= 'waiting' and state ~= 'running' then return 'ended' end
redis.call('ZREMRANGEBYSCORE', key('listeners', id), '-inf', now)
if redis.call('ZCARD', key('listeners', id)) > 0 then return 'listening' end
abandon(id, ending(4), now)
return 'abandoned'

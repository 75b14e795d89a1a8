-- A caller stops listening; when it was the last, the job is abandoned. A listener that has lapsed
-- still counts here: after an absence of Redis it may be about to renew, which the reaper waits for.
-- ARGV: ns, job, listener, result_ttl, metadata_ttl, cap
-- Returns listening | abandoned | ended
local id = ARGV[2]
local now = now_ms()
call_if_sound('ZREM', key('listeners', id), ARGV[3])
local job = intact(id)
if not job then return 'ended' end
if redis.call('ZCARD', key('listeners', id)) > 0 then return 'listening' end
abandon(id, job, ending(4), now)
return 'abandoned'

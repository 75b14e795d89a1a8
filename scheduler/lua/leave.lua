-- A caller stops listening; when it was the last, the job is abandoned. A listener that has lapsed
-- still counts here: after an absence of Redis it may be about to renew, which the reaper waits for.
-- ARGV: ns, job, listener, result_ttl, metadata_ttl, cap, then of a caller who left in the door, and may
--   have been attached to another job than the one offered: principal, request
-- Returns listening | abandoned | ended
local now = now_ms()

local function leave(id)
  local job = intact(id)
  if not job then return 'ended' end
  if redis.call('ZCARD', key('listeners', id)) > 0 then
    note_gateways(id)
    return 'listening'
  end
  abandon(id, job, ending(4), now)
  return 'abandoned'
end

local left = call_if_sound('ZREM', key('listeners', ARGV[2]), ARGV[3])
if left ~= 1 and ARGV[8] then
  local bound = call_if_sound('GET', key('request', ARGV[7], ARGV[8]))
  if bound and call_if_sound('ZREM', key('listeners', bound), ARGV[3]) == 1 then return leave(bound) end
end
return leave(ARGV[2])

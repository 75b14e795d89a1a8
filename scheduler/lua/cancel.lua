-- Cancel by request id or by cancellation id (a turn, which may cover several requests), and remember
-- it for requests still on their way: the latest of each principal.
-- ARGV: ns, principal, kind (request | turn), id, memory_ms, result_ttl, metadata_ttl, cap
-- Returns {remembered (1 | 0), then per hit: request id, was (queued | running | already_finished)}
-- A request id that is known isn't remembered: a retry of what has finished is a replay.
local principal, kind, target = ARGV[2], ARGV[3], ARGV[4]
local now = now_ms()
local MOST_REMEMBERED = 1000
local memory = key('cancelled', principal)
if not holds(memory, 'zset') then redis.call('UNLINK', memory) end
-- A write that frees, so that the rest works at the memory limit.
redis.call('ZREMRANGEBYSCORE', memory, '-inf', now)
local jobs = {}
if kind == 'request' then
  local bound = call_if_sound('GET', key('request', principal, target))
  if bound then jobs[1] = bound end
else
  jobs = call_if_sound('SMEMBERS', key('turn', principal, target)) or {}
  table.sort(jobs)
end

local hits = {'0'}
for _, id in ipairs(jobs) do
  local job = intact(id) or read_job(id, 'state', 'request_id')
  local was
  if job.state ~= 'ended' and not job.payload then
    -- Gone, or the reaper discards it.
    if kind == 'turn' then redis.call('SREM', key('turn', principal, target), id) end
  elseif job.state == 'waiting' then
    was = 'queued'
    local o = ending(6)
    o.reason, o.code, o.message = 'cancelled', 'cancelled', 'cancelled by the caller'
    end_job(id, job, o, now)
  elseif job.state == 'running' then
    was = 'running'
    redis.call('HSETNX', key('job', id), 'cancel', 'caller')
  elseif job.state == 'ended' then
    was = 'already_finished'
  end
  if was then
    hits[#hits + 1] = job.request_id
    hits[#hits + 1] = was
  end
end
if kind == 'turn' or #hits == 1 then
  redis.call('ZADD', memory, now + tonumber(ARGV[5]), kind .. ':' .. target)
  redis.call('ZREMRANGEBYRANK', memory, 0, -1 - MOST_REMEMBERED)
  redis.call('PEXPIRE', memory, ARGV[5])
  hits[1] = '1'
end
return hits

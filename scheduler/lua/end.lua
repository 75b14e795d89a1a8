-- A worker states how its job ended. ARGV: ns, job, execution, reason, code, message, terminal,
--   result_ttl, metadata_ttl, cap
-- Returns {'ended'}, {'lost'}, {'early', remaining_ms} when a timeout came before the deadline, which
--   another caller may have moved, or {'cancelled'} when the caller's cancel came first.
local id, execution = ARGV[2], ARGV[3]
local now = now_ms()
local job = intact(id, 'running')
if not job then -- or the reaper discards it
  local known = read_job(id, 'state', 'execution')
  local again = known.state == 'ended' and known.execution == execution -- after a lost reply
  return {again and 'ended' or 'lost'}
end
if job.execution ~= execution then return {'lost'} end
if job.cancel and ARGV[4] ~= 'cancelled' then return {'cancelled'} end
if ARGV[4] == 'timeout' and tonumber(job.deadline_ms) > now then
  return {'early', tostring(tonumber(job.deadline_ms) - now)}
end
local o = ending(8)
o.reason, o.code, o.message, o.terminal = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
end_job(id, job, o, now)
return {'ended'}

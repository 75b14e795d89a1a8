-- Record once what the caller's business made of a request. Nothing reads it but whoever asks for the
-- evidence. ARGV: ns, principal, request, business outcome
-- Returns {verdict, ms}: recorded | repeated | conflict | unknown; ms: when the first was recorded
local id = call_if_sound('GET', key('request', ARGV[2], ARGV[3]))
if not id then return {'unknown', '0'} end
local job = read_job(id, 'state', 'business_outcome', 'business_outcome_ms')
if not job.state then return {'unknown', '0'} end
if job.business_outcome then
  local verdict = job.business_outcome == ARGV[4] and 'repeated' or 'conflict'
  return {verdict, job.business_outcome_ms or '0'}
end
local now = string.format('%.0f', now_ms())
redis.call('HSET', key('job', id), 'business_outcome', ARGV[4], 'business_outcome_ms', now)
return {'recorded', now}

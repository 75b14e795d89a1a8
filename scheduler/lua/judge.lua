-- Record once what the caller's business made of a request. Nothing reads it but whoever asks for the
-- evidence. ARGV: ns, principal, request, judgement
-- Returns {verdict, ms}: recorded | repeated | conflict | unknown; ms: when the first was recorded
local id = call_if_sound('GET', key('request', ARGV[2], ARGV[3]))
if not id then return {'unknown', '0'} end
local job = read_job(id, 'state', 'judgement', 'judged_ms')
if not job.state then return {'unknown', '0'} end
if job.judgement then
  return {job.judgement == ARGV[4] and 'repeated' or 'conflict', job.judged_ms or '0'}
end
local now = string.format('%.0f', now_ms())
redis.call('HSET', key('job', id), 'judgement', ARGV[4], 'judged_ms', now)
return {'recorded', now}

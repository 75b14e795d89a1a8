-- Post one step's frames of all lanes and hear which lanes have to stop: one round trip per step.
-- ARGV: ns, then per lane: job, execution, index ('' for no frame), codes, pcm
-- Returns per lane: ok | cancelled | lost. A frame that is there already is not written again; one
-- that would leave a gap is refused as lost.
local now = now_ms()
-- Frees first, see renew: what was admitted is spoken to its end, which its length bounds.
redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', now)

local function write(id, index, codes, pcm, admitted)
  local elapsed = now - admitted
  redis.call('XADD', key('events', id), '*', 'k', 'frame', 'i', index, 'c', codes, 'p', pcm,
    't', elapsed)
  redis.call('HSET', key('job', id), 'frames', index + 1)
  if index == 0 then redis.call('HSET', key('job', id), 'first_audio_ms', elapsed) end
  wake(id)
end

local function post(id, execution, index, codes, pcm)
  local job = read_job(id, 'state', 'execution', 'cancel', 'frames', 'admitted_ms')
  if job.state ~= 'running' or job.execution ~= execution then return 'lost' end
  if job.cancel then return 'cancelled' end
  if not index then return 'ok' end
  local expected, admitted = tonumber(job.frames or ''), tonumber(job.admitted_ms or '')
  if not expected or not admitted or index > expected then return 'lost' end
  if index == expected then write(id, index, codes, pcm, admitted) end
  return 'ok'
end

local verdicts = {}
for i = 2, #ARGV, 5 do
  verdicts[#verdicts + 1] = post(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4])
end
return verdicts

-- Post one step's frames of all lanes and hear which lanes have to stop: one round trip per step.
-- ARGV: ns, then per lane: job, execution, index ('' for no frame), codes, pcm
-- Returns per lane: ok | cancelled | lost. A frame that is there already is not written again; one
-- that would leave a gap is refused as lost.
-- This runs once for every frame that is spoken, so it makes no table and no call that it can spare.
local now = now_ms()
-- Frees first, see renew: what was admitted is spoken to its end, which its length bounds.
redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', now)

local news = {} -- per gateway, the jobs that have some

local function write(id, job, index, codes, pcm, admitted)
  local elapsed = now - admitted
  local added = call_if_sound('XADD', NS .. ':events:' .. id, '*', 'k', 'frame', 'i', index, 'c', codes,
    'p', pcm, 't', elapsed)
  if not added then return 'lost' end -- the reaper discards it
  if index == 0 then
    redis.call('HSET', job, 'frames', 1, 'first_audio_ms', elapsed)
  else
    redis.call('HSET', job, 'frames', index + 1)
  end
  gather(news, id)
  return 'ok'
end

local function post(id, execution, index, codes, pcm)
  local job = NS .. ':job:' .. id
  local known = redis.pcall('HMGET', job, 'state', 'execution', 'cancel', 'frames', 'admitted_ms')
  if known[1] ~= 'running' or known[2] ~= execution then return 'lost' end
  if known[3] then return 'cancelled' end
  if not index then return 'ok' end
  local expected, admitted = tonumber(known[4] or ''), tonumber(known[5] or '')
  if not expected or not admitted or index > expected then return 'lost' end
  if index == expected then return write(id, job, index, codes, pcm, admitted) end
  return 'ok'
end

local verdicts = {}
for i = 2, #ARGV, 5 do
  verdicts[#verdicts + 1] = post(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4])
end
tell(news)
return verdicts

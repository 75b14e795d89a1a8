-- Post one step's frames of all lanes and hear which lanes have to stop: one round trip per step.
-- ARGV: ns, then per lane: job, execution, index ('' for no frame), frame (shared/messages packs it)
-- Returns per lane: ok | cancelled | lost. A frame that is there already is not written again; one
-- that would leave a gap is refused as lost.
-- This runs once for every frame that is spoken, so it makes no table, no call and no number of a text
-- (nor a text of a number, which takes longer still) that it can spare.
local now = now_ms()
-- Frees first, see renew: what was admitted is spoken to its end, which its length bounds.
redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', now)

local hear, news = {}, {} -- who has news: the jobs, by the gateways that their records name, and by gateway

local function note(id, gateways)
  if not gateways then return gather(news, id) end
  local jobs = hear[gateways]
  if not jobs then
    hear[gateways] = {id}
  elseif jobs[#jobs] ~= id then
    jobs[#jobs + 1] = id
  end
end

local function write(id, job, index, frame, gateways)
  if redis.pcall('XADD', NS .. ':events:' .. id, '*', 'f', frame).err then
    return 'lost' -- the reaper discards it
  end
  redis.call('HINCRBY', job, 'frames', '1')
  if index == '0' then
    local admitted = count_in(redis.call('HGET', job, 'admitted_ms') or '')
    redis.call('HSET', job, 'first_audio_ms', ms_since(admitted or now, now))
  end
  note(id, gateways)
  return 'ok'
end

local function post(id, execution, index, frame)
  local job = NS .. ':job:' .. id
  local known = redis.pcall('HMGET', job, 'state', 'execution', 'cancel', 'frames', 'gateways')
  if known[1] ~= 'running' or known[2] ~= execution then return 'lost' end
  if known[3] then return 'cancelled' end
  if index == '' then return 'ok' end
  if index == known[4] then return write(id, job, index, frame, known[5]) end
  local expected = count_in(known[4])
  return expected and tonumber(index) < expected and 'ok' or 'lost'
end

local verdicts = {}
for i = 2, #ARGV, 4 do
  verdicts[#verdicts + 1] = post(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
for gateways, jobs in pairs(hear) do
  for gateway in string.gmatch(gateways, '[^ ]+') do
    local told = news[gateway] or {}
    for _, id in ipairs(jobs) do told[#told + 1] = id end
    news[gateway] = told
  end
end
tell(news)
return verdicts

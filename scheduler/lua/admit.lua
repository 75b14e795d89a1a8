-- Admit a request, attach to its job, point at its outcome, or say why not: one decision.
-- ARGV: ns, job, principal, request, cancellation ('' for none), queue, fingerprint, payload,
--       timeout_ms, listener, listener_ttl, min_depth, depth_per_lane, max_depth, max_per_principal,
--       facts (about the request, for whoever reads its result; never its text),
--       class (interactive | batch), budget (the frames that it may have)
-- Returns {verdict, ...}: admitted depth wait | attached job | replay job kept_ms (of its audio) |
--   conflict | cancelled | no_ready_worker | queue_full depth wait | too_many_waiting wait |
--   deadline_unmeetable wait
local MAX_TURN = 64
local id, principal, request, turn = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local queue, fingerprint, payload = ARGV[6], ARGV[7], ARGV[8]
local timeout, listener, listener_ttl = tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[11])
local min_depth, per_lane, max_depth = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local max_per_principal = tonumber(ARGV[15])
local class, budget = ARGV[17], tonumber(ARGV[18])
local now = now_ms()
local jk = key('job', id)

local function listen(job)
  redis.call('ZADD', key('listeners', job), now + listener_ttl, listener)
  redis.call('PEXPIRE', key('listeners', job), timeout + LIVE_MS)
  note_gateways(job)
end

-- A job that somebody waits for now is no batch work any more.
local function lift(bound)
  local job = read_job(bound, 'state', 'queue', 'line', 'seq', 'budget')
  if class ~= 'interactive' or class_of(job.line) == class then return end
  local line = string.gsub(job.line, '^%a+', class)
  if job.state == 'waiting' then leave_waiting(bound, job.queue, job) end
  job.line = line
  redis.call('HSET', key('job', bound), 'line', line)
  redis.call('HDEL', key('job', bound), 'wait_bound_ms', 'total_bound_ms')
  if job.state == 'waiting' then enter_waiting(bound, job.queue, job) end
end

local function attach(bound)
  local other = read_job(bound, 'state', 'queue', 'fingerprint', 'finish_reason', 'abandoned', 'deadline_ms')
  if other.state ~= 'ended' and not intact(bound) then return nil end
  local same = other.fingerprint == fingerprint
  if other.state ~= 'ended' then
    if not same then return {'conflict'} end
    listen(bound)
    if now + timeout > tonumber(other.deadline_ms) then
      redis.call('HSET', key('job', bound), 'deadline_ms', now + timeout)
      redis.call('PEXPIRE', key('job', bound), timeout + LIVE_MS)
      redis.call('PEXPIRE', key('request', principal, request), timeout + LIVE_MS)
      redis.call('ZADD', key('alone', other.queue), 'XX', now + timeout, bound)
    end
    lift(bound)
    wake(bound)
    return {'attached', bound}
  end
  local reason = other.finish_reason
  local kept_ms = redis.call('PTTL', key('events', bound))
  local kept = reason == 'cancelled' or kept_ms ~= -2
  if reason == 'stop' or reason == 'length' or (reason == 'cancelled' and other.abandoned ~= '1') then
    if not same then return {'conflict'} end
    if kept then return {'replay', bound, tostring(math.max(0, kept_ms))} end
  end
  return nil
end

-- The turn keeps its ended jobs for a while, so that a cancel can say what it came too late for.
local function join_turn()
  local members = key('turn', principal, turn)
  if not holds(members, 'set') then redis.call('UNLINK', members) end
  if redis.call('SCARD', members) >= MAX_TURN then
    for _, member in ipairs(redis.call('SMEMBERS', members)) do
      local state = read_job(member, 'state').state
      if state ~= 'waiting' and state ~= 'running' then redis.call('SREM', members, member) end
    end
  end
  redis.call('SADD', members, id)
  redis.call('PEXPIRE', members, timeout + LIVE_MS)
end

if redis.call('EXISTS', jk) == 1 then
  -- The same call again after a lost reply.
  return {'admitted', '0', '0'}
end
local function was_cancelled(member)
  return now < tonumber(call_if_sound('ZSCORE', key('cancelled', principal), member) or 0)
end
if was_cancelled('request:' .. request) or (turn ~= '' and was_cancelled('turn:' .. turn)) then
  return {'cancelled'}
end
local bound = call_if_sound('GET', key('request', principal, request))
if bound then
  local answer = attach(bound)
  if answer then return answer end
end

local lanes = ready_lanes(queue, now)
if lanes == 0 then return {'no_ready_worker'} end
local waiting = key('waiting', queue)
local depth = redis.call('ZCARD', waiting)
local places = math.min(math.max(min_depth, per_lane * lanes), max_depth)
local bound_ms, wait, held = estimated_wait(queue, lanes, now, class, principal)
local batch_fills_its_half = class == 'batch'
  and redis.call('ZCOUNT', waiting, BATCH_FIRST, '+inf') >= math.max(1, math.floor(places / 2))
if depth >= places or batch_fills_its_half then
  return {'queue_full', tostring(depth), tostring(wait)}
end
local own = 0
for _, each in ipairs(CLASSES) do
  own = own + redis.call('ZCARD', key('line', queue, each .. ':' .. principal))
end
if own >= max_per_principal then
  return {'too_many_waiting', tostring(wait)}
end
local service = budget * (budget_frame_ms(key('stats', queue)) or 0)
if bound_ms > 0 and held + service > timeout then
  return {'deadline_unmeetable', tostring(math.floor(wait + service))}
end

local seq = redis.call('HINCRBY', key('stats', queue), 'admitted', 1)
local line = class .. ':' .. principal
redis.call('SADD', key('queues'), queue)
redis.call('HSET', jk, 'state', 'waiting', 'queue', queue, 'principal', principal,
  'request_id', request, 'fingerprint', fingerprint, 'payload', payload, 'seq', seq,
  'facts', ARGV[16], 'admitted_ms', now, 'deadline_ms', now + timeout, 'attempt', 0, 'frames', 0,
  'line', line, 'budget', budget, 'wait_bound_ms', bound_ms,
  'total_bound_ms', bound_ms > 0 and math.floor(bound_ms + service) or 0, 'expected_wait_ms', wait)
if turn ~= '' then
  redis.call('HSET', jk, 'cancellation_id', turn)
  join_turn()
end
redis.call('PEXPIRE', jk, timeout + LIVE_MS)
redis.call('SET', key('request', principal, request), id, 'PX', timeout + LIVE_MS)
listen(id)
enter_waiting(id, queue, {line = line, seq = seq, budget = budget}) -- last: what breaks off here is mended
return {'admitted', tostring(depth), tostring(wait)}

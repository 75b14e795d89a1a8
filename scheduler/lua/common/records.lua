-- A live job's record: whole, damaged, or forgotten.

-- What a live job's record can't be without, and what a look at it asks for; and all of it that any rule
-- asks for.
local LOOK = {'state', 'queue', 'principal', 'request_id', 'payload', 'fingerprint', 'seq', 'admitted_ms',
  'deadline_ms', 'attempt', 'frames', 'line', 'budget', 'attempt_ms', 'cancel', 'claimed_ms'}
local RECORD = {'execution', 'first_audio_ms', 'cancellation_id', 'solo', 'wait_bound_ms',
  'total_bound_ms', 'expected_wait_ms', 'worker_id', unpack(LOOK)}

-- As count_in, where nobody asks which number.
local function is_count(text)
  return text and #text < 16 and string.find(text, '^%d+$')
end

-- Whether a key may be used by what this command is for, which counts its members.
local function takes(command, k)
  return type(redis.pcall(command, k)) == 'number'
end

-- The record of a job that lives, in this state if one is named; nil if it has not all that the rules
-- need, its events and listeners included. fields: LOOK, or all; into: a table that held the same before.
local function intact(id, state, fields, into)
  local job = read_into(into or {}, id, fields or RECORD)
  local lives = job.state == 'waiting' or job.state == 'running'
  local whole = lives and (not state or job.state == state) and job.queue and job.principal
    and job.request_id and job.payload and job.fingerprint and is_count(job.seq)
    and is_count(job.admitted_ms) and is_count(job.deadline_ms) and is_count(job.attempt)
    and is_count(job.frames) and is_count(job.budget) and CLASS[class_of(job.line or '') or '']
    and (job.state == 'waiting' or is_count(job.attempt_ms))
    and takes('XLEN', NS .. ':events:' .. id) and takes('ZCARD', NS .. ':listeners:' .. id)
  return whole and job or nil
end

-- A live job whose record is damaged or gone can't be served and must not hold up the others. Its
-- callers hear that the queue lost it. Which line it stood in may not be known any more; the sums are
-- put right by the next reap, which looks at all jobs at once for it.
local function discard(id, queue)
  redis.call('ZREM', key('waiting', queue), id)
  redis.call('ZREM', key('running', queue), id)
  redis.call('ZREM', key('alone', queue), id)
  for _, line in ipairs(redis.call('ZRANGE', key('ring', queue), 0, -1)) do
    leave_line(id, queue, line)
  end
  if not is_name(id) then return end -- it never was a job
  redis.call('UNLINK', key('job', id), key('events', id))
  redis.call('HSET', key('reaper'), 'unsure:' .. queue, 1)
  redis.call('ZADD', key('ended', queue), now_ms(), id)
  redis.call('HINCRBY', key('stats', queue), 'ended', 1)
  redis.call('HINCRBY', key('stats', queue), 'ended:discarded', 1)
  wake(id)
  redis.call('UNLINK', key('listeners', id))
end

-- A later request with this id starts afresh.
local function unbind(id, principal, request_id)
  local rk = key('request', principal, request_id)
  if call_if_sound('GET', rk) == id then redis.call('DEL', rk) end
end

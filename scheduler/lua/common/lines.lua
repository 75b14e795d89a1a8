-- Which job waits where, and which runs. One truth: a live job is in exactly one of the waiting and
-- running sets of its queue.

-- The order of claims within a queue: class first, then round-robin between principals, then first in
-- first out. Each principal has a line per class, a zset of its waiting jobs by admission. The ring
-- holds the lines that aren't empty, by class and then by turn. A claim takes the head of the first
-- line and puts the line at the end of its class's part of the ring; a line that was empty joins there.
-- So between two turns of a line every other line of its class has at most one: with k of them, the
-- n-th job of a line is claimed after at most n * k claims, however many jobs the others have. A job
-- that is cancelled, expires or moves costs its line no turn. What was handed back or lost keeps its
-- place: it stands in the line of its class that belongs to nobody, whose turn is always the first. What
-- has to run alone takes a whole worker, so it stands in another line of nobody's, which takes turns.
-- The lines hold just what the waiting set holds, in another order; the reaper mends them from it.
local CLASS = {interactive = 0, batch = 2 ^ 51}
local CLASSES = {'interactive', 'batch'}
local BATCH_FIRST = string.format('%.0f', CLASS.batch)

local function scored(class, number)
  return string.format('%.0f', CLASS[class] + number)
end

local function class_of(line)
  return string.match(line, '^(%a+):')
end

local FIRST = ':' -- behind a class: whose turn is always the first
local ALONE = ':*' -- and who runs alone

local function is_returned(line)
  return line == class_of(line) .. FIRST
end

local function join_line(id, queue, line, seq)
  local ring = key('ring', queue)
  redis.call('ZADD', key('line', queue, line), seq, id)
  if redis.call('ZSCORE', ring, line) then return end
  local turn = is_returned(line) and 0 or redis.call('HINCRBY', key('stats', queue), 'turn', 1)
  redis.call('ZADD', ring, scored(class_of(line), turn), line)
end

local function leave_line(id, queue, line)
  local members = key('line', queue, line)
  redis.call('ZREM', members, id)
  if redis.call('EXISTS', members) == 0 then redis.call('ZREM', key('ring', queue), line) end
end

-- What waits and what runs is summed up as it changes, in frames that callers allowed for, so that
-- an admission reads no other job. job: line, seq, budget; for running ones budget and attempt_ms.
local function enter_waiting(id, queue, job)
  local class = class_of(job.line)
  redis.call('ZADD', key('waiting', queue), scored(class, job.seq), id)
  join_line(id, queue, job.line, job.seq)
  redis.call('HINCRBY', key('stats', queue), 'waiting_frames:' .. class, job.budget)
end

local function leave_waiting(id, queue, job)
  if redis.call('ZREM', key('waiting', queue), id) == 0 then return end
  leave_line(id, queue, job.line)
  redis.call('HINCRBY', key('stats', queue), 'waiting_frames:' .. class_of(job.line), 0 - job.budget)
end

-- A running job that has no neighbours is noted as such: it takes up more than its own lane.
local function note_alone(id, queue, job)
  if not job.solo then return end
  redis.call('ZADD', key('alone', queue), job.deadline_ms, id)
  redis.call('PEXPIRE', key('alone', queue), LIVE_MS)
end

local function enter_running(id, queue, job, expiry)
  redis.call('ZADD', key('running', queue), expiry, id)
  note_alone(id, queue, job)
  redis.call('HINCRBY', key('stats', queue), 'running_frames', job.budget)
  redis.call('HINCRBY', key('stats', queue), 'running_since_ms', job.attempt_ms)
end

local function leave_running(id, queue, job)
  if redis.call('ZREM', key('running', queue), id) == 0 then return end
  redis.call('ZREM', key('alone', queue), id)
  if job.execution then redis.call('UNLINK', key('claim', job.execution)) end
  redis.call('HINCRBY', key('stats', queue), 'running_frames', 0 - job.budget)
  redis.call('HINCRBY', key('stats', queue), 'running_since_ms', 0 - job.attempt_ms)
end

-- A running job goes back to its old place, in front of all of its class that were never claimed; or, if
-- it has to run alone from now on, to those that do.
local function back_to_waiting(id, queue, job)
  local jk = key('job', id)
  leave_running(id, queue, job)
  job.line = class_of(job.line) .. (job.solo and ALONE or FIRST)
  redis.call('HDEL', jk, 'execution', 'worker_id')
  if job.solo then redis.call('HSET', jk, 'solo', '1') end
  redis.call('HSET', jk, 'state', 'waiting', 'line', job.line)
  enter_waiting(id, queue, job)
end

-- Put right what dead processes left behind in one queue. Idempotent; run it as often as you like.
-- A round looks at every live job, some of them in each call, so that no call holds Redis for long: a
-- reaper goes on with what the last call returned. A queue of few jobs is one call.
-- After a silence of all reapers (Redis was away, or nobody reaped) leases and listeners don't lapse
-- for one lease time, so that their owners can renew them first.
-- KEYS: RQ's list of this queue. ARGV: ns, queue, max_attempts, lease_ms, silence_ms, slice (about how
--   many jobs to look at in one call), result_ttl, metadata_ttl, cap, gap_ms (no round begins when this
--   queue was reaped so lately; 0: always), which keeps the cost from growing with the number of
--   workers that reap; most jobs to report, of each of the two kinds; where to go on ('': begin)
-- Returns {where to go on ('': the round is complete), held, returned, lost, expired, abandoned, the
--   workers that fell silent (ids, a space between two), n, n jobs that no list holds, jobs that ended
--   a while ago and that RQ may still know}
local queue, max_attempts = ARGV[2], tonumber(ARGV[3])
local lease, silence, slice = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local most, place = tonumber(ARGV[11]), ARGV[12]
local now = now_ms()
local waiting, running, reaper = key('waiting', queue), key('running', queue), key('reaper')
local returned, lost, expired, abandoned = 0, 0, 0, 0

local reaped = 'last_ms:' .. queue
local since = now - tonumber(redis.call('HGET', reaper, reaped) or '0')
if place == '' and since >= 0 and since < tonumber(ARGV[10]) then -- below 0, the clock was put back
  return {'', '0', '0', '0', '0', '0', '', '0'}
end

local function finish(id, job, reason, code, message)
  local o = ending(7)
  o.reason, o.code, o.message = reason, code, message
  redis.call('HDEL', key('job', id), 'execution') -- its worker, if it lives, hears that it lost the job
  end_job(id, job, o, now)
end

redis.call('ZREMRANGEBYSCORE', key('lanes', queue), '-inf', now) -- frees first, see renew
redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', now)

local last = tonumber(redis.call('HGET', reaper, 'last_ms') or '0')
if now - last > silence then
  redis.call('HSET', reaper, 'hold_until_ms', now + lease)
  if last > 0 then redis.call('HSET', reaper, 'away_ms', now) end -- see was_served
end
redis.call('HSET', reaper, 'last_ms', now, reaped, now, 'due_ms', now + silence)
if ready_lanes(queue, now) == 0 then redis.call('HSET', key('stats', queue), 'unserved_ms', now) end
-- A hold that is further off than it can be was told before the clock was put back.
local left = tonumber(redis.call('HGET', reaper, 'hold_until_ms') or '0') - now
local held = left > 0 and left <= lease

-- How many live jobs a worker has or was the last to lose: it lost them together.
local had
local function had_company(worker)
  if not had then
    had = {}
    local live = redis.call('ZRANGE', running, 0, -1)
    for _, class in ipairs(CLASSES) do
      for _, kind in ipairs({FIRST, ALONE}) do
        for _, id in ipairs(redis.call('ZRANGE', key('line', queue, class .. kind), 0, -1)) do
          live[#live + 1] = id
        end
      end
    end
    for _, id in ipairs(live) do
      local job = read_job(id, 'worker_id', 'lost_by')
      for by in pairs({[job.worker_id or ''] = true, [job.lost_by or ''] = true}) do
        had[by] = (had[by] or 0) + 1
      end
    end
  end
  return (had[worker] or 0) > 1
end

-- A job whose worker fell silent. What kills a worker outright is one of those that ran in it, and nobody
-- knows which: so whoever has lost all attempts, the last of them beside others, gets one more, alone.
local function take_back(id, job)
  local worker, more = job.worker_id or '', tonumber(job.attempt) < max_attempts
  local alone = not more and not job.solo and max_attempts > 1 and had_company(worker)
  if not more and not alone then
    finish(id, job, 'worker_lost', 'worker_lost', 'every worker that took the job was lost')
    lost = lost + 1
    return
  end
  job.solo = alone and '1' or job.solo
  back_to_waiting(id, queue, job)
  redis.call('HSET', key('job', id), 'lost_by', worker)
  redis.call('HINCRBY', key('stats', queue), 'retried', 1)
  returned = returned + 1
end

local silent, silent_ids = {}, {}
local lapsed = held and {} or redis.call('ZRANGEBYSCORE', running, '-inf', now, 'LIMIT', 0, slice)
for _, id in ipairs(lapsed) do
  local job = intact(id, 'running')
  redis.call('HINCRBY', key('stats', queue), 'leases_lost', 1)
  local worker = job and job.worker_id
  if worker and is_name(worker) and not silent[worker] then
    silent[worker] = true
    silent_ids[#silent_ids + 1] = worker
  end
  if not job then
    discard(id, queue)
  elseif job.cancel then
    finish(id, job, 'cancelled', 'cancelled', 'cancelled by the caller')
  else
    take_back(id, job)
  end
end

-- Deadlines that passed, and jobs that nobody listens to any more. A running job gets a moment past
-- its deadline, in which its worker ends it with what is known.
local missing, sums = {}, {['waiting_frames:interactive'] = 0, ['waiting_frames:batch'] = 0,
  running_frames = 0, running_since_ms = 0}

local live = redis.call('ZCARD', waiting) + redis.call('ZCARD', running)
local is_whole = place == '' and live <= slice

-- Any hint leads to the next job, whichever that is. So none is missing while there are as many as jobs.
-- Of few jobs those are reported that RQ's list lacks. Of many the list is not read: as many are as lack,
-- out of this slice, some of which may be in the list already.
local lacking = redis.call('ZCARD', waiting) - redis.call('LLEN', KEYS[1])
local listed = {}
if lacking > 0 and is_whole then
  lacking = most
  for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do listed[id] = true end
end

local ring, in_ring = key('ring', queue), {}

local function is_in_line(id, line)
  if in_ring[line] == nil then in_ring[line] = redis.call('ZSCORE', ring, line) ~= false end
  return in_ring[line] and redis.call('ZSCORE', key('line', queue, line), id)
end

local function add_up(state, job)
  if state == 'running' then
    sums.running_frames = sums.running_frames + job.budget
    sums.running_since_ms = sums.running_since_ms + job.attempt_ms
  else
    local frames = 'waiting_frames:' .. class_of(job.line)
    sums[frames] = sums[frames] + job.budget
  end
end

local function correct_sums()
  for name, sum in pairs(sums) do
    local right = string.format('%.0f', sum)
    if (redis.call('HGET', key('stats', queue), name) or '0') ~= right then
      redis.call('HSET', key('stats', queue), name, right)
    end
  end
end

local function see_to_line(id, job)
  if not is_in_line(id, job.line) then
    join_line(id, queue, job.line, job.seq)
    in_ring[job.line] = true
  end
end

-- Whether nobody listens any more; those whose time is over are taken off.
local function is_unheard(id)
  local listeners = key('listeners', id)
  local lapsed = redis.call('ZREMRANGEBYSCORE', listeners, '-inf', now)
  if redis.call('EXISTS', listeners) == 0 then return true end
  if lapsed > 0 then note_gateways(id) end
  return false
end

local looked = {} -- the record that is looked at: making a table for each took longer than reading it
local function look_at(id, state)
  local job = intact(id, state, LOOK, looked)
  local grace = state == 'running' and 500 or 0
  if not job then
    discard(id, queue)
    return
  elseif tonumber(job.deadline_ms) + grace <= now then
    finish(id, intact(id), 'timeout', job.claimed_ms and 'generation_timeout' or 'queue_timeout',
      'the deadline passed')
    expired = expired + 1
    return
  elseif not held and not job.cancel and is_unheard(id) then
    abandon(id, intact(id), ending(7), now)
    abandoned = abandoned + 1
    if state == 'waiting' then return end -- it has ended
  end
  add_up(state, job)
  if state == 'waiting' then see_to_line(id, job) end
  if state == 'waiting' and not listed[id] and #missing < math.min(lacking, most) then
    listed[id] = true
    missing[#missing + 1] = id
  end
end

local function look_at_all()
  for _, state in ipairs({'waiting', 'running'}) do
    for _, id in ipairs(redis.call('ZRANGE', key(state, queue), 0, -1)) do look_at(id, state) end
  end
  correct_sums()
  return ''
end

local function look_at_some()
  local state, cursor = string.match(place, '^(%a+):(%d+)$')
  state, cursor = state or 'waiting', cursor or '0'
  local found = redis.call('ZSCAN', key(state, queue), cursor, 'COUNT', slice)
  local seen = {} -- a set that is growing may name a member twice
  for i = 1, #found[2], 2 do
    local id = found[2][i]
    if not seen[id] then look_at(id, state) end
    seen[id] = true
  end
  if found[1] ~= '0' then return state .. ':' .. found[1] end
  return state == 'waiting' and 'running:0' or ''
end

-- A damaged record that was discarded may have left something behind in the sums. A look at some can't
-- tell, so once after it they are told anew from all, of which nothing else is read.
local function sum_up()
  for _, state in ipairs({'waiting', 'running'}) do
    for _, id in ipairs(redis.call('ZRANGE', key(state, queue), 0, -1)) do
      local job = read_job(id, 'state', 'line', 'budget', 'attempt_ms')
      if job.state == state and count_in(job.budget) and CLASS[class_of(job.line or '') or '']
        and (state == 'waiting' or count_in(job.attempt_ms)) then add_up(state, job) end
    end
  end
  correct_sums()
end

if place == '' and redis.call('HDEL', reaper, 'unsure:' .. queue) == 1 and not is_whole then sum_up() end
local next_place = is_whole and look_at_all() or look_at_some()

-- Kept audio that ran out.
local retained = key('retained')
for _, member in ipairs(redis.call('ZRANGEBYSCORE', retained, '-inf', now, 'LIMIT', 0, slice)) do
  redis.call('ZREM', retained, member)
  redis.call('HINCRBY', reaper, 'retained_bytes', 0 - bytes_of(member))
end

local report = {next_place, held and '1' or '0', tostring(returned), tostring(lost), tostring(expired),
  tostring(abandoned), table.concat(silent_ids, ' ')}
report[#report + 1] = tostring(#missing)
for _, id in ipairs(missing) do report[#report + 1] = id end
local leftovers = redis.call('ZRANGEBYSCORE', key('ended', queue), '-inf', now - 2000, 'LIMIT', 0, most)
for _, id in ipairs(leftovers) do
  if is_name(id) then
    report[#report + 1] = id
  else
    redis.call('ZREM', key('ended', queue), id)
  end
end
return report

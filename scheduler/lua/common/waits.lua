-- How long a wait will be.

-- Lanes of the ready workers of a queue whose registration has not lapsed, and how many one has at most.
local function ready_lanes(queue, now)
  local lanes, widest = 0, 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key('lanes', queue), now, '+inf')) do
    local own = tonumber(string.match(member, '|(%d+)$') or '') or 0
    lanes, widest = lanes + own, math.max(widest, own)
  end
  return lanes, widest
end

-- Milliseconds of service that a frame of a job's budget stands for: as measured over ended jobs, which
-- don't all use their budgets up; before any has ended, a whole step as the workers measured it while
-- they warmed up. nil: nobody knows.
local function budget_frame_ms(stats)
  local said = redis.call('HMGET', stats, 'service_ms', 'service_budget', 'warm_step_ms')
  if said[1] and said[2] then return tonumber(said[1]) / tonumber(said[2]) end
  return tonumber(said[3] or '')
end

-- How many frames go before the next job of this class and principal (nil: whoever comes last): all of
-- the better class, and of its own at most what the turns of the lines let pass. Who must run alone holds
-- all lanes of a worker, and has a turn after as many others as there are lanes.
local function frames_before(queue, class, principal, same, lanes, now)
  local said = redis.call('HMGET', key('stats', queue), 'waiting_frames:interactive',
    'waiting_frames:' .. class)
  local better = class == 'batch' and tonumber(said[1] or '0') or 0
  local frames = tonumber(said[2] or '0')
  if same == 0 then return better + frames end
  local function in_line(line) return redis.call('ZCARD', key('line', queue, class .. line)) end
  local alone = in_line(ALONE)
  local before, turns = same - alone, alone
  if principal then
    local returned, own, others = in_line(FIRST), in_line(':' .. principal), 0
    for _, mine in ipairs({alone, returned, own}) do others = others - (mine > 0 and 1 or 0) end
    others = others + redis.call('ZCOUNT', key('ring', queue), scored(class, 0),
      '(' .. scored(class, CLASS.batch))
    before = math.min(before, returned + own + others * (own + 1))
    turns = math.min(alone, 1 + math.floor(before / lanes))
  end
  if turns > 0 then
    local _, widest = ready_lanes(queue, now)
    before = before + turns * widest
  end
  return better + frames * before / same
end

-- By how many milliseconds nearly all sums at the door, of the wait's bound and the job's own service, were
-- longer than what came true at the job's end: all but one in a thousand, by the normal law over the
-- measured mean and deviation. Below 0 where sums were too short, but never further than one of them was.
-- Nothing is told from few samples, nor from old ones: a door that refuses whoever has to wait measures
-- nothing more, and would stay shut.
local RARE = 3.1 -- so many deviations below the mean
local FEW = 20
local function least_spare(stats, now)
  local spread = read_spread(stats, 'spare')
  if spread.weight < FEW or math.abs(now - spread.at) > AGE_MS then return 0 end
  return math.max(spread.low, spread.mean - RARE * math.sqrt(spread.var))
end

-- Milliseconds until it is the turn of the next job of this class and principal, as three numbers.
-- bound: what the running still need and what those need that go before it, over the lanes; too long by
-- what other lanes still have to do when the job starts. Who runs alone holds all lanes of its worker.
-- expected: the bound less what bounds were too long by on the mean, as measured over jobs that had to
-- wait. held: what a deadline is held against, the bound less what nearly all of them had to spare, since a
-- refusal at once is better than an answer cut short. All 0 while a lane is free or nothing was measured
-- yet.
local function estimated_wait(queue, lanes, now, class, principal)
  local stats, waiting = key('stats', queue), key('waiting', queue)
  local running = redis.call('ZCARD', key('running', queue))
  local better = class == 'batch' and redis.call('ZCOUNT', waiting, '-inf', '(' .. BATCH_FIRST) or 0
  local same = (class == 'batch' and redis.call('ZCARD', waiting)
    or redis.call('ZCOUNT', waiting, '-inf', '(' .. BATCH_FIRST)) - better
  local frame_ms = budget_frame_ms(stats)
  local alone, taken = redis.call('ZCOUNT', key('alone', queue), now, '+inf'), running
  if alone > 0 then
    local _, widest = ready_lanes(queue, now)
    taken = running + alone * math.max(0, widest - 1)
  end
  if lanes == 0 or not frame_ms or taken + better + same < lanes then return 0, 0, 0 end

  local said = redis.call('HMGET', stats, 'running_frames', 'running_since_ms', 'wait_over_ms')
  local needed = tonumber(said[1] or '0') * frame_ms
  local rest = math.max(needed - (running * now - tonumber(said[2] or '0')), 0.1 * needed)
    * taken / math.max(running, 1)
  local bound = (rest + frames_before(queue, class, principal, same, lanes, now) * frame_ms) / lanes
  local expected = math.max(0, bound - math.max(0, tonumber(said[3] or '0')))
  local held = math.max(expected, bound - least_spare(stats, now))
  return math.floor(bound), math.floor(expected), math.floor(held)
end

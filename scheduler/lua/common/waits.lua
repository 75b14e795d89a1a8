-- How long a wait will be.

-- Lanes of the ready workers of a queue whose registration has not lapsed.
local function ready_lanes(queue, now)
  local lanes = 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key('lanes', queue), now, '+inf')) do
    lanes = lanes + (tonumber(string.match(member, '|(%d+)$') or '') or 0)
  end
  return lanes
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
-- the better class, and of its own at most what the turns of the lines let pass.
local function frames_before(queue, class, principal, same)
  local said = redis.call('HMGET', key('stats', queue), 'waiting_frames:interactive',
    'waiting_frames:' .. class)
  local better = class == 'batch' and tonumber(said[1] or '0') or 0
  local frames = tonumber(said[2] or '0')
  if not principal or same == 0 then return better + frames end
  local function in_line(owner) return redis.call('ZCARD', key('line', queue, class .. ':' .. owner)) end
  local returned, own = in_line(''), in_line(principal)
  local others = redis.call('ZCOUNT', key('ring', queue), scored(class, 0),
    '(' .. scored(class, CLASS.batch)) - (own > 0 and 1 or 0) - (returned > 0 and 1 or 0)
  local before = math.min(same, returned + own + others * (own + 1))
  return better + frames * before / same
end

-- Milliseconds until it is the turn of the next job of this class and principal, as three numbers.
-- bound: what the running still need and what those need that go before it, over the lanes; too long by
-- what other lanes still have to do when the job starts. expected: the bound less what bounds were too
-- long by on the mean, as measured over jobs that had to wait. sure: the bound less what 49 of 50 bounds
-- were too long by at least, and half a usual error on top, as the job's own time is an estimate too. A
-- deadline is held against that, since a refusal at once is better than a timeout later. All 0 while a
-- lane is free or nothing was measured yet.
local function estimated_wait(queue, lanes, now, class, principal)
  local stats, waiting = key('stats', queue), key('waiting', queue)
  local running = redis.call('ZCARD', key('running', queue))
  local better = class == 'batch' and redis.call('ZCOUNT', waiting, '-inf', '(' .. BATCH_FIRST) or 0
  local same = (class == 'batch' and redis.call('ZCARD', waiting)
    or redis.call('ZCOUNT', waiting, '-inf', '(' .. BATCH_FIRST)) - better
  local frame_ms = budget_frame_ms(stats)
  if lanes == 0 or not frame_ms or running + better + same < lanes then return 0, 0, 0 end

  local said = redis.call('HMGET', stats, 'running_frames', 'running_since_ms', 'wait_over_ms',
    'wait_spare_ms', 'wait_error_ms')
  local needed = tonumber(said[1] or '0') * frame_ms
  local rest = math.max(needed - (running * now - tonumber(said[2] or '0')), 0.1 * needed)
  local bound = (rest + frames_before(queue, class, principal, same) * frame_ms) / lanes
  local function less(what) return math.max(0, bound - math.max(0, tonumber(what or '0'))) end
  local sure = math.min(bound, less(said[4]) + tonumber(said[5] or '0') / 2)
  return math.floor(bound), math.floor(less(said[3])), math.floor(sure)
end

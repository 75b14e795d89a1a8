-- What is measured as jobs come and go, and how it is forgotten.

-- Running means: the newest sample weighs so much. samples: field, value, ...
local function measure(stats, newest, samples)
  local fields, means = {}, {}
  for i = 1, #samples, 2 do fields[#fields + 1] = samples[i] end
  for i, old in ipairs(redis.call('HMGET', stats, unpack(fields))) do
    local sample, mean = samples[2 * i], tonumber(old or '')
    means[#means + 1] = fields[i]
    means[#means + 1] = string.format('%.3f', mean and mean + newest * (sample - mean) or sample)
  end
  redis.call('HSET', stats, unpack(means))
end

-- How far estimates were off: mean, variance, and the lowest sample below 0. Forgotten by age: what is
-- AGE_MS old weighs 1 / e of what is new, however much comes in a second, since jobs that wait together
-- share their fate and a crowd of them tells little more than one. In fields of stats that begin with name.
local AGE_MS = 60000
local SPREAD = {'_ms', '_var', '_low_ms', '_weight', '_at_ms'}

-- All 0 before the first sample. weight: how many new samples the known ones weigh as much as; at: when
-- the last of them came.
local function read_spread(stats, name)
  local fields, spread = {}, {}
  for i, part in ipairs(SPREAD) do fields[i] = name .. part end
  local said = redis.call('HMGET', stats, unpack(fields))
  for i, part in ipairs({'mean', 'var', 'low', 'weight', 'at'}) do
    spread[part] = tonumber(said[i] or '0')
  end
  return spread
end

local function add_to_spread(stats, name, sample, now)
  local known = read_spread(stats, name)
  local kept = math.exp(0 - math.abs(now - known.at) / AGE_MS)
  local weight, off = kept * known.weight + 1, sample - known.mean
  local values = {known.mean + off / weight, (1 - 1 / weight) * (known.var + off * off / weight),
    math.min(0, kept * known.low, sample), weight, now}
  local fields = {}
  for i, part in ipairs(SPREAD) do
    fields[2 * i - 1], fields[2 * i] = name .. part, string.format('%.3f', values[i])
  end
  redis.call('HSET', stats, unpack(fields))
end

-- Whether time since then was the service's own: nobody reaps while Redis is away, and reapers note when
-- they come back to one, and when a queue has no ready lane. What an outage added to a wait or a job is no
-- measure of either. Notes from ahead are of a clock that was put back, and so is such a beginning: the
-- time since then isn't known.
local function was_served(queue, since, now)
  local said = redis.call('HMGET', key('reaper'), 'due_ms', 'away_ms')
  local due = tonumber(said[1] or '') or now
  local away = tonumber(said[2] or '') or 0
  local unserved = tonumber(redis.call('HGET', key('stats', queue), 'unserved_ms') or '') or 0
  local function is_past(noted) return noted < since or noted > now end
  return since <= now and now <= due and is_past(away) and is_past(unserved)
end

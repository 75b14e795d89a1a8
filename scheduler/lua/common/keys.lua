-- Keys, the time, and values read with care: anything may stand in a key of ours.

local NS = ARGV[1]
local MAX_MEMBERSHIP_MS = 60000 -- the most that a listener's membership may be set to last
local LIVE_MS = 3600000 -- a live job's keys last so long past its deadline, should nobody end it
local FRAME_BYTES = 64 + 3840 -- a frame's codes and PCM

local function key(...)
  return table.concat({NS, ...}, ':')
end

local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- How long ago that was; 0 where the clock was put back since.
local function ms_since(instant, now)
  return math.max(0, now - tonumber(instant))
end

-- HMGET into a table by field name; a missing field is nil, and so is each of a key that is no hash.
local function read_into(job, id, names)
  local values = redis.pcall('HMGET', NS .. ':job:' .. id, unpack(names))
  for i = 1, #names do job[names[i]] = values[i] or nil end
  return job
end

local function read_job(id, ...)
  return read_into({}, id, {...})
end

-- A number as Redis counts with it: no sign, no fraction. Else nil. What is taken off a count is written
-- 0 - n, since -n of 0 is "-0", which Redis takes for no number.
local function count_in(text)
  return text and string.match(text, '^%d+$') and #text < 16 and tonumber(text) or nil
end

-- Whether it can be a name of ours: a job's, a queue's, a worker's, a gateway's. Others are nobody's, and
-- not all of them are text.
local function is_name(text)
  return string.find(text, '^[%w._:-]+$') ~= nil
end

-- How many bytes a member of the kept audio stands for.
local function bytes_of(member)
  return count_in(string.match(member, '|(%d+)$')) or 0
end

-- Whether a key may be used as what it is for: somebody may have put something else there.
local function holds(k, kind)
  local found = redis.call('TYPE', k)
  found = found.ok or found
  return found == kind or found == 'none'
end

-- As redis.call, but nil where another kind of value is in the key's place.
local function call_if_sound(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not string.find(tostring(reply.err), 'WRONGTYPE', 1, true) then return redis.call(...) end
  return nil
end

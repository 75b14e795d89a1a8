-- Who hears of a job: the gateways that listen to it.

-- Note in news, by gateway, that a job has some for whoever listens to it there.
local function gather(news, id)
  for _, member in ipairs(redis.pcall('ZRANGE', NS .. ':listeners:' .. id, 0, -1)) do
    local gateway = string.match(member, '^([^|]+)|')
    if gateway then
      local jobs = news[gateway]
      if not jobs then
        news[gateway] = {id}
      elseif jobs[#jobs] ~= id then -- not told for another caller of this job
        jobs[#jobs + 1] = id
      end
    end
  end
end

-- Tell every gateway which jobs have news for it: one entry each, however many they are.
local function tell(news)
  for gateway, jobs in pairs(news) do
    local stream = key('wake', gateway)
    call_if_sound('XADD', stream, 'MAXLEN', '~', 10000, '*', 'jobs', table.concat(jobs, ' '))
    redis.call('PEXPIRE', stream, 60000)
  end
end

-- Which gateways listen to a job is kept in its record too, where the writers of frames find it.
local function note_gateways(id)
  local seen, names = {}, {}
  for _, member in ipairs(redis.pcall('ZRANGE', key('listeners', id), 0, -1)) do
    local gateway = string.match(member, '^([^|]+)|')
    if gateway and not seen[gateway] then names[#names + 1] = gateway end
    seen[gateway or ''] = true
  end
  redis.call('HSET', key('job', id), 'gateways', table.concat(names, ' '))
end

local function wake(id)
  local news = {}
  gather(news, id)
  tell(news)
end

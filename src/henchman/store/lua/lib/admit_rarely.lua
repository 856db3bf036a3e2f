-- What becomes of a job that does not simply come into the world: its key is another one's, it is debounced, or it needs
-- others.
-- include parked
-- include needs_asked
local IN_DOUBT = 600  -- seconds after which a lock that keeps others out is looked into

-- The payload of a job, under the id of the one whose place it takes.
local function with_jid(job, jid)
  local first, last = string.find(job.payload, '"jid":"' .. job.jid .. '"', 1, true)
  if not first then
    error('the payload of ' .. job.jid .. ' does not say so', 0)
  end
  return string.sub(job.payload, 1, first - 1) .. '"jid":"' .. jid .. '"' .. string.sub(job.payload, last + 1)
end

-- Another one has the key: newer arguments go to it, or the job waits for its end, or is its duplicate.
local function meet(ask, job, now, phase, holder, since, mark)
  if now - (tonumber(since) or now) > IN_DOUBT then
    redis.call('ZADD', key('doubt'), 'NX', as_text(now), phase .. ' ' .. ask.scope .. '\n' .. job.key)
  end
  if ask.conflict == 'replace' then
    redis.call('HSET', key('latest'), holder, with_jid(job, holder))
    return 'P ' .. holder
  end
  if ask.conflict == 'wait' then
    park(job.jid, job.queue, job.due, 'key ' .. job.mark, job.payload, phase .. ask.scope .. '\n' .. job.key, job.tracked)
    return 'B ' .. holder
  end
  return 'D ' .. holder .. (mark == job.mark and ' 0' or ' 1')
end

-- A job whose arguments are replaced, and whose time is put off, by each push until it is due. What stands in the
-- schedule is known by its bytes; when they are not there any more, the job goes its way and a new burst begins.
local function debounce(ask, job, now)
  local pending, schedule = key('debounce') .. ask.scope, key('schedule')
  local first, jid, old = string.match(not ask.again and redis.call('HGET', pending, job.key) or '', '^(%S+) (%S+) (.*)$')
  local due, payload, answer = now + ask.debounce, job.payload, 'C'
  if old and redis.call('ZSCORE', schedule, old) then
    first = math.min(tonumber(first) or now, now)
    due, payload, answer = math.min(due, first + ask.most), with_jid(job, jid), 'P ' .. jid
  else
    first, jid, old = now, job.jid, nil
  end
  redis.call('HSET', pending, job.key, as_text(first) .. ' ' .. jid .. ' ' .. payload)
  if old then
    redis.call('ZREM', schedule, old)
  end
  redis.call('ZADD', schedule, as_text(due), payload)
  return answer
end

-- Whether a job waits for what it needs; it is parked then.
local function parked_for_needs(ask, job)
  local missing, count = asking().missing(job.needs)
  if #missing == 0 then
    return false
  end
  asking().park(job, missing, count, ask.wait_at_most)
  return true
end

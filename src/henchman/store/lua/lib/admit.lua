-- Admission: whether a job with a key comes into the world. Every script that brings jobs goes through `admit`. What a
-- definition asks is a table, which client/keyed.py makes: `scope`; `phases`, for how long its key is held (o once,
-- u until it succeeded, w until it starts, r while it runs); `conflict`, what becomes of a second one (skip, raise,
-- replace, wait); `again`: it comes whoever has the key; `once_for` s; `throttle` ms; `debounce` and `most` s;
-- `wait_at_most` s for what it needs. Phase f, followed: others wait for its end; it takes its key over from anybody.
-- A job is a table too: `jid`, `key`, `mark` (of its arguments), `queue`, `due` (a Unix time, or ""), `payload`;
-- `needs`, a list of {scope, name, once_for}, or nil; `tracked`, see parked_row_text, or nil.
-- include times
-- include locks
-- Push a job. Where it may have to wait, its payload comes without the time at which it enters its queue.
local known_queues = {}
local function push_admitted(ask, job, now)
  if job.due ~= '' then
    redis.call('ZADD', key('schedule'), job.due, job.payload)
    return
  end
  local payload = job.payload
  if ask.conflict == 'wait' or job.unstamped or job.needs then
    payload = string.sub(payload, 1, -2) .. ',"enqueued_at":' .. as_moment(now) .. '}'
  end
  if not known_queues[job.queue] then
    redis.call('SADD', key('queues'), job.queue)
    known_queues[job.queue] = key('queue_prefix') .. job.queue
  end
  redis.call('LPUSH', known_queues[job.queue], payload)
end

local rare  -- made with the first job that needs it
local function rarely()
  if not rare then
    -- include admit_rarely
    rare = {meet = meet, debounce = debounce, parked_for_needs = parked_for_needs}
  end
  return rare
end

local look  -- the same
local function remembered(scope, name, once_for)
  if not look then
    -- include once
    look = once_look
  end
  return look(scope, name, once_for)
end

local function digest_of(ask, job)
  return redis.sha1hex(ask.scope .. '\n' .. job.key)
end

-- The answer to a job that does not come into the world, or does not go its way at once; nothing when its way is free.
local function stopped(ask, job, now, phase)
  if ask.throttle then
    local window = key('throttle') .. digest_of(ask, job)
    local throttling = redis.call('GET', window)
    if throttling and redis.call('PTTL', window) > ask.throttle then  -- the clock went back, and nobody came in for as long
      redis.call('PEXPIRE', window, ask.throttle)
    end
    if throttling then
      return 'D ' .. throttling .. ' 0'
    end
  end
  if phase then
    local holder, since, mark = lock_holder(phase, ask.scope, job.key)
    if holder == job.jid then
      return 'C'
    end
    if holder then
      return rarely().meet(ask, job, now, phase, holder, since, mark)
    end
  end
  if phase == 'o' then
    local letter, jid, mark = remembered(ask.scope, job.key, ask.once_for)
    if letter then
      return 'R ' .. jid .. ((mark or job.mark) == job.mark and ' 0 ' or ' 1 ') .. letter
    end
  end
end

-- One line: "C" it is pushed; "D <jid> <differs>" it is a duplicate of a job that has not ended, or that was pushed a
-- moment ago, "R <jid> <differs> s|f" of one that succeeded or failed; "P <jid>" that job takes its arguments;
-- "B <jid>" it waits for the end of that one, "B -" for what it needs.
-- The first write of each is one that a full server refuses: nothing is done then.
local function admit(ask, job, now)
  if ask.debounce then
    return rarely().debounce(ask, job, now)
  end
  local phase = string.match(ask.phases, '[ouwf]')
  local answer = not ask.again and stopped(ask, job, now, phase ~= 'f' and phase)
  if answer then
    return answer
  end
  local waits = job.needs and rarely().parked_for_needs(ask, job)
  if not waits then
    push_admitted(ask, job, now)  -- first: what fails here leaves no lock behind
  end
  if phase then
    lock_take(phase, ask.scope, job.key, job.jid, job.mark)
    if phase == 'o' or phase == 'f' then
      watch_if_awaited(phase, ask.scope, job.key)
    end
  end
  if ask.throttle then
    redis.call('SET', key('throttle') .. digest_of(ask, job), job.jid, 'PX', ask.throttle)
  end
  return waits and 'B -' or 'C'
end

-- Whether what answers so ends a call: the rows behind a duplicate that raises are not pushed.
local function ends_call(ask, answer)
  return ask.conflict == 'raise' and string.find(answer, '^[DR]')
end

-- A client sends its keyed pushes through a lane, and counts its turns: the same turn again is one whose answer was lost.
-- The job may have run and given its key back since, and must not be pushed again.
local LANE_MS = 3600000
local function answered_before(lane, turn)
  local before, answers = string.match(redis.call('GET', key('lane') .. lane) or '', '^(%d+) (.*)$')
  return before and tonumber(before) >= tonumber(turn) and answers  -- an earlier turn comes late: nobody reads its answer
end

local function answer_lane(lane, turn, answers)
  local text = table.concat(answers, '\n')
  redis.call('SET', key('lane') .. lane, turn .. ' ' .. text, 'PX', LANE_MS)
  return text
end

-- What becomes of the lock of a job that has ended, or comes back, and of who waits for it.
-- include times
-- include locks
-- include once
-- include parked
-- include came_back

-- A job is parked no longer.
local function unpark(jid, due)
  redis.call('HDEL', key('parked'), jid)
  if due ~= '' then
    redis.call('ZREM', key('parked_due'), jid)
  end
end

-- A row, apart, with its time as the clock is now; nothing when that job is not parked, or its row is not ours.
local function parked_row(jid)
  local row = redis.call('HGET', key('parked'), jid) or ''
  local queue, due, reason, rest = string.match(row, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n(.*)$')
  if due and due ~= '' then
    due = redis.call('ZSCORE', key('parked_due'), jid) or due
  end
  if string.sub(rest or '', 1, 1) == '{' then  -- parked by a version whose rows told nothing to the history
    return queue, due, reason, '', rest
  end
  local tracked, payload = string.match(rest or '', '^([^\n]*)\n(.*)$')
  if payload then
    return queue, due, reason, tracked, payload
  end
end

local carry_tracked  -- (payload, effects): lib/effects.lua has it, where anybody is let go

-- Whether the clock is known not to have stepped since times were moved along with it: the stager has just looked.
local function clock_is_known(now)
  local told = redis.call('HMGET', key('clock'), 'now', 'left')
  return told[1] and not told[2] and math.abs(now - told[1]) < 2
end

-- Where a parked job goes that waits no longer: one that has a time of its own by way of the schedule, unless it is
-- certain that this has come. One that was about to start is next to run.
local function let_go(phase, queue, due, payload, tracked)
  local now, at = server_now(), tonumber(due)
  if at and (at > now or not clock_is_known(now)) then
    redis.call('ZADD', key('schedule'), due, payload)
    tracked = string.gsub(tracked, '"enqueued"', '"scheduled"', 1)
  elseif phase == 'r' or phase == 's' then
    redis.call('SADD', key('queues'), queue)
    redis.call('RPUSH', key('queue_prefix') .. queue, payload)
    came_back(queue, 1)
  else
    redis.call('SADD', key('queues'), queue)
    redis.call('LPUSH', key('queue_prefix') .. queue,
      string.sub(payload, 1, -2) .. ',"enqueued_at":' .. as_moment(now) .. '}')
  end
  if tracked ~= '' and carry_tracked then
    pcall(carry_tracked, payload, tracked)  -- it went, whatever the history says
  end
end

-- In scripts without lib/effects.lua: those who are let go are counted in their batches.
local function count_let_go(batches)
  function carry_tracked(_, tracked)
    for _, effect in ipairs(cjson.decode(tracked)) do
      batches.track(effect)
    end
  end
end

-- The jid of the first of a line, and the digest of its arguments, if it told one; it is parked no longer. The caller
-- gives it the lock. nil: nobody waits.
local function release_next(await_key)
  local waiting_line = key('awaits') .. await_key
  while true do
    local jid = redis.call('ZRANGE', waiting_line, 0, 0)[1]
    if not jid then
      return nil
    end
    local queue, due, reason, tracked, payload = parked_row(jid)
    if queue then  -- else it ended while it waited
      let_go(string.sub(await_key, 1, 1), queue, due, payload, tracked)
      unpark(jid, due)
      if string.find(payload, '"deadline":', 1, true) then
        redis.call('ZREM', key('parked_until'), jid)
      end
    end
    redis.call('ZREM', waiting_line, jid)
    if redis.call('EXISTS', waiting_line) == 0 then
      redis.call('ZREM', key('doubt'), doubt_of(await_key))
    end
    if queue then
      return jid, string.match(reason, '^key (%x+)$')
    end
  end
end

local needing  -- lib/needs.lua has it: who waits for the end of a job
local hand_places  -- lib/effects.lua has it: who waits for a place of a limit

-- Whoever held the lock does so no longer: the next in line does, or nobody. `letter`: how its job ended, s it succeeded.
local function hand_on(phase, scope, name, letter)
  if phase == 's' then
    return hand_places(scope, name)
  end
  local heir, digest
  if phase == 'r' or phase == 'u' then  -- nobody is handed the others
    heir, digest = release_next(phase .. scope .. '\n' .. name)
  end
  if heir then
    lock_take(phase, scope, name, heir, digest)
  else
    local locks = key('lock') .. phase .. ':' .. scope
    redis.call('HDEL', locks, name)
  end
  if phase == 'o' or phase == 'f' then
    needing().ended(phase, scope, name, letter)
  end
end

-- Free a lock if it is this jid's, and hand it on: 1 if it was, else 0.
local function lock_free(phase, scope, name, jid)
  if lock_holder(phase, scope, name) ~= jid then
    return 0
  end
  hand_on(phase, scope, name, '')
  return 1
end

-- Give a job that comes back to life its key again.
local function lock_again(phase, scope, name, jid)
  local holder, _, digest, is_dead = lock_holder(phase, scope, name)
  if not holder or (holder == jid and is_dead) then
    lock_take(phase, scope, name, jid, digest)
    if phase ~= 'u' then
      watch_if_awaited(phase, scope, name)
    end
  end
end

-- The lock says that its job is dead. false: it is another one's, or said so before.
local function lock_dies(phase, scope, name, jid)
  local locks = key('lock') .. phase .. ':' .. scope
  local holder, since, digest, is_dead = lock_holder(phase, scope, name)
  if holder ~= jid or is_dead then
    return false
  end
  redis.call('HSET', locks, name, jid .. ' ' .. (since or '0') .. 'd ' .. (digest or ''))
  return true
end

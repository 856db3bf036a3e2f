-- Locks of business keys. A lock is a field that names the job that holds a key in a phase: o once, u until it succeeded,
-- w until it starts, r while it runs, f followed: others wait for its end, and each push takes it over. No timer frees a
-- lock: the end of its job does, as long as the lock names that job. One whose job is dead has a "d" behind its time.
-- Who waits for a lock is parked: the hash of the parked has its row, the line of that lock its place. A line is called
-- "<phase><scope>\n<key>". Keys and ids are any text; scopes and queues hold no line break.
-- include times
local ONCE_GENERATIONS = {0, 1, -1, -2}  -- that are looked at: 1 was written to before the clock went back
local ONCE_BUCKETS = 16384  -- so that each hash stays small, and is stored without an index

-- jid, since, digest of who holds a lock, and whether that one is dead, as it says.
local function lock_says(value)
  local jid, since, digest = string.match(value, '^(.*) (%S+) (%S*)$')
  local is_dead = jid ~= nil and string.byte(since, -1) == 100
  return jid or value, is_dead and string.sub(since, 1, -2) or since, digest, is_dead
end

-- The same of a key; nothing when nobody does.
local function lock_holder(phase, scope, name)
  local locks = key('lock') .. phase .. ':' .. scope
  local value = redis.call('HGET', locks, name)
  if value then
    return lock_says(value)
  end
end

-- Take locks of a scope for jobs: name, jid, name, jid … The caller has looked.
local known_scopes = {}
local function locks_take(phase, scope, taken, digest)
  if #taken == 0 then
    return
  end
  local rest = ' ' .. as_text(server_now()) .. ' ' .. (digest or '')
  for at = 2, #taken, 2 do
    taken[at] = taken[at] .. rest
  end
  local locks = key('lock') .. phase .. ':' .. scope
  redis.call('HSET', locks, unpack(taken))
  if not known_scopes[scope] and scope ~= '' then  -- "": followed by jid
    redis.call('SADD', key('scopes'), scope)
    known_scopes[scope] = true
  end
end

local function lock_take(phase, scope, name, jid, digest)
  locks_take(phase, scope, {name, jid}, digest)
end

local function doubt_of(await_key)
  return string.sub(await_key, 1, 1) .. ' ' .. string.sub(await_key, 2)
end

-- A row of the parked: queue; `due`, "" or a Unix time; why it waits: "running", "needs…", or "key <digest>" for the lock
-- of a phase before its first start; `tracked`, the effects that tell the history that it goes on, or ""; its payload.
local function parked_row_text(queue, due, reason, tracked, payload)
  return queue .. '\n' .. due .. '\n' .. reason .. '\n' .. tracked .. '\n' .. payload
end

-- Write the row of a job. Its time has a place in a set, too: there it moves along when the clock steps.
local function put_parked(jid, queue, due, reason, tracked, payload)
  redis.call('HSET', key('parked'), jid, parked_row_text(queue, due, reason, tracked, payload))
  if tonumber(due) then
    redis.call('ZADD', key('parked_due'), due, jid)
  end
end

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

-- The effects that tell the history that a tracked job goes on, when it waits now.
local function tracked_later(batch, jid)
  return cjson.encode({{'track', batch, jid, 'enqueued', '0', '', '{"ending":"staged"}', ''}})
end

-- Let a job wait at the end of a line.
local function park(jid, queue, due, reason, payload, await_key, tracked)
  local waiting_line = key('awaits') .. await_key
  put_parked(jid, queue, due, reason, tracked or '', payload)
  redis.call('ZADD', waiting_line, 'NX', redis.call('INCR', key('token')), jid)
  redis.call('ZADD', key('doubt'), 'NX', as_text(server_now()), doubt_of(await_key))
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
  elseif phase == 'r' then
    redis.call('SADD', key('queues'), queue)
    redis.call('RPUSH', key('queue_prefix') .. queue, payload)
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

-- Whoever held the lock does so no longer: the next in line does, or nobody. `letter`: how its job ended, s it succeeded.
local function hand_on(phase, scope, name, letter)
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

-- Digits `first` to `last` of a hexadecimal text, at most eight, as a number.
local function digits(hex, first, last)
  return tonumber(string.sub(hex, first, last), 16)
end

-- How the jobs of keys ended is remembered in generations of half of `once_for`, so that a whole generation is forgotten
-- at once; three of them are looked at, and the next. Of a key 10 bytes of a digest are kept, of a jid 12 bytes; one that is no hex
-- stands as it is, behind a capital letter.
local function once_place(scope, name, once_for)
  local digest = redis.sha1hex(scope .. '\n' .. name)
  local field = struct.pack('>I4I4I2', digits(digest, 1, 8), digits(digest, 9, 16), digits(digest, 17, 20))
  local now = server_now()
  return field, digits(digest, 21, 24) % ONCE_BUCKETS, math.floor(now * 2 / once_for), now
end

-- s, f or x (over without success), the jid, and for how many milliseconds that is kept; nothing when nothing is remembered.
local function once_look(scope, name, once_for)
  local field, bucket, generation = once_place(scope, name, once_for)
  for _, off in ipairs(ONCE_GENERATIONS) do
    local once_memory = key('once') .. string.format('%d:%d:%d', once_for, generation + off, bucket)
    local value = redis.call('HGET', once_memory, field)
    if value then
      local letter, jid = string.sub(value, 1, 1), string.sub(value, 2)
      if letter ~= string.upper(letter) then  -- packed
        jid = string.format('%08x%08x%08x', struct.unpack('>I4I4I4', jid))
      end
      return string.lower(letter), jid, redis.call('PTTL', once_memory)
    end
  end
end

local function once_remember(scope, name, once_for, letter, jid)
  local field, bucket, generation, now = once_place(scope, name, once_for)
  local once_memory = key('once') .. string.format('%d:%d:%d', once_for, generation, bucket)
  local value = string.upper(letter) .. jid
  if #jid == 24 and not string.find(jid, '[^0-9a-f]') then
    value = letter .. struct.pack('>I4I4I4', digits(jid, 1, 8), digits(jid, 9, 16), digits(jid, 17, 24))
  end
  redis.call('HSET', once_memory, field, value)
  redis.call('PEXPIRE', once_memory, math.ceil(((generation + 3) * once_for / 2 - now) * 1000))
end

-- Give a job that comes back to life its key again.
local function lock_again(phase, scope, name, jid)
  local holder, _, digest, is_dead = lock_holder(phase, scope, name)
  if not holder or (holder == jid and is_dead) then
    lock_take(phase, scope, name, jid, digest)
    if phase ~= 'u' then
      needing().taken(phase, scope, name)
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

-- The jid for which a dead job may not come back, of whose effects `text` is the JSON: by now that one has its key, or has
-- succeeded with it. nil: it may.
local function kept_out_by(text)
  if not string.find(text, '["relock"', 1, true) then
    return nil
  end
  for _, effect in ipairs(cjson.decode(text)) do
    if effect[1] == 'relock' and effect[2] ~= 'f' then  -- a followed job comes back beside who has taken its key over
      local phase, scope, name, jid = effect[2], effect[3], effect[4], effect[5]
      local holder = lock_holder(phase, scope, name)
      if not holder and phase == 'o' then
        local letter, earlier = once_look(scope, name, effect[6])
        holder = letter == 's' and earlier or nil
      end
      if holder and holder ~= jid then
        return holder
      end
    end
  end
end

-- Locks of business keys. A lock is a field that names the job that holds a key in a phase: o once, u until it succeeded,
-- w until it starts, r while it runs, f followed: others wait for its end, and each push takes it over. No timer frees a
-- lock: the end of its job does, as long as the lock names that job. One whose job is dead has a "d" behind its time.
-- Who waits for a lock is parked: the hash of the parked has its row, the line of that lock its place. A line is called
-- "<phase><scope>\n<key>". Keys and ids are any text; scopes and queues hold no line break.
-- jid, since, digest of who holds a lock, and whether that one is dead, as it says.
local function lock_says(value)
  local jid, since, digest = string.match(value, '^(.*) (%S+) (%S*)$')
  local is_dead = jid ~= nil and string.byte(since, -1) == 100
  return jid or value, is_dead and string.sub(since, 1, -2) or since, digest, is_dead
end

-- Whether the job with this jid holds it: the same, in a third of the time, where nothing else is asked.
local function is_held_by(value, jid)
  return string.sub(value, 1, #jid) == jid and string.find(value, '^ %S+ %S*$', #jid + 1) ~= nil or value == jid
end

-- The same of a key; nothing when nobody does.
local function lock_holder(phase, scope, name)
  local locks = key('lock') .. phase .. ':' .. scope
  local value = redis.call('HGET', locks, name)
  if value then
    return lock_says(value)
  end
end

-- Taking a lock: the caller has looked.
local known_scopes, since_now = {}, nil
local function note_scope(scope)
  if not known_scopes[scope] and scope ~= '' then  -- "": followed by jid
    redis.call('SADD', key('scopes'), scope)
    known_scopes[scope] = true
  end
end

-- What a lock says that a job takes now.
local function lock_value(jid, digest)
  since_now = since_now or ' ' .. as_text(server_now()) .. ' '
  return jid .. since_now .. (digest or '')
end

local function lock_take(phase, scope, name, jid, digest)
  local locks = key('lock') .. phase .. ':' .. scope
  redis.call('HSET', locks, name, lock_value(jid, digest))
  note_scope(scope)
end

-- A job has a key from now on: if others wait for its end already, it is looked for when that is not told.
local function watch_if_awaited(phase, scope, name)
  local waiting_line = key('awaits') .. 'n' .. scope .. '\n' .. name
  if redis.call('EXISTS', waiting_line) == 1 then
    redis.call('ZADD', key('doubt'), 'NX', as_text(server_now()), phase .. ' ' .. scope .. '\n' .. name)
  end
end

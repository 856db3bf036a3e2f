-- operate: one slice of an operation: entries leave a set or a queue, each goes where it goes next, and is counted
-- KEYS queues source operation doer trash trashes
-- ARGV dead_max dead_timeout identity lease_ms slice keep_s most_bytes queue looked (where name old new effects)*
-- returns the state of the operation, or LOST: another does it by now. Nothing is done unless it is "running", and a slice
--   that was done is not done again. queue is the name of the queue that source is, or empty: then it is a set, and where
--   and name are as in move.lua; what leaves a queue goes nowhere, or next into another one. What can be put back goes
--   into trash, six texts an entry: source, where, name, score, old, new; that is what has no effects, as far as all that
--   lies in trashes stays below most_bytes. trashes has the end and the bytes of each.
-- include moving
-- include left_line
-- include came_back
local OPERATION, TRASH, TRASHES, LEASE, QUEUE = KEYS[3], KEYS[5], KEYS[6], ARGV[4], ARGV[8]
if redis.call('GET', KEYS[4]) ~= ARGV[3] then
  return 'LOST'
end
redis.call('PEXPIRE', KEYS[4], LEASE)
local state = redis.call('HGET', OPERATION, 'state') or 'LOST'
if state ~= 'running' or redis.call('HGET', OPERATION, 'slice') == ARGV[5] then
  return state
end
local move = moving(KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2]), 10)
local now, keep, room, own = server_now(), tonumber(ARGV[6]), tonumber(ARGV[7]), 0
local counts, reason = {done = 0, gone = 0, stayed = 0, kept = 0, final = 0, full = 0, looked = tonumber(ARGV[9])}, nil

local all = redis.call('HGETALL', TRASHES)
for at = 1, #all, 2 do
  local ends, bytes = string.match(all[at + 1], '^(%S+) (%d+)$')
  if all[at] == TRASH then
    own = tonumber(bytes)
  elseif tonumber(ends) < now then
    redis.call('HDEL', TRASHES, all[at])
    bytes = 0
  end
  room = room - tonumber(bytes)
end

-- A queue is searched from its newest entry on, and gone through in that order: the next stands close behind the last.
local place, holes, HOLE = 0, 0, 'operation ' .. ARGV[5]
local function take(old)
  local near = redis.call('LRANGE', KEYS[2], place, place + 99)
  for at, one in ipairs(near) do
    if one == old then
      place = place + at - 1
      return true
    end
  end
  local found = redis.call('LPOS', KEYS[2], old)
  place = found or place
  return found
end

local function leave(where, name, old, new, effects)
  if QUEUE == '' then
    return move(where, name, old, new, effects)
  elseif not take(old) then
    return 0
  elseif where == 'next' then  -- before what waits there; the newest goes first, so their order stays
    local first = redis.call('SADD', KEYS[1], name)  -- where that is refused, nothing was done yet
    local fine, told = pcall(redis.call, 'RPUSH', key('queue_prefix') .. name, new)
    if not fine then
      if first == 1 then
        redis.call('SREM', KEYS[1], name)
      end
      return in_words(told)
    end
    came_back(name, 1)
  else
    carry_out(old, 'deleted', effects)
  end
  redis.call('LSET', KEYS[2], place, HOLE)
  holes = holes + 1
  return 1, '0'
end

for at = 10, #ARGV, 5 do
  local where, name, old, new, effects = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local status, score = leave(where, name, old, new, effects)
  if status == 1 then
    counts.done = counts.done + 1
    local size = #old + #new + 100
    if effects ~= '' then
      counts.final = counts.final + 1
    elseif size > room then
      counts.full = counts.full + 1
    else
      redis.call('RPUSH', TRASH, KEYS[2], where, where == 'nowhere' and QUEUE or name, score, old, new)
      counts.kept, room, own = counts.kept + 1, room - size, own + size
    end
  elseif status == 0 then
    counts.gone = counts.gone + 1
  else
    counts.stayed, reason = counts.stayed + 1, reason or status
  end
end
if holes > 0 then
  redis.call('LREM', KEYS[2], holes, HOLE)
  left_line(QUEUE, holes)
  if redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('SREM', KEYS[1], QUEUE)
  end
end
finish_effects()
if own > 0 then
  redis.call('EXPIRE', TRASH, keep)
  redis.call('HSET', TRASHES, TRASH, as_text(now + keep) .. ' ' .. string.format('%d', own))
end
for name, count in pairs(counts) do
  if count > 0 then
    redis.call('HINCRBY', OPERATION, name, count)
  end
end
if reason then
  redis.call('HSET', OPERATION, 'reason', string.sub(reason, 1, 300))
end
redis.call('HSET', OPERATION, 'slice', ARGV[5], 'at', as_text(now))
return state

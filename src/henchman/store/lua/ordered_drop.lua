-- ordered_drop: one payload of an id of an ordered queue is gone, by hand; the others stay as they are
-- KEYS queues
-- ARGV queue id where score payload
-- returns 1 it is gone, 0 it is not there (any more), 2 the id is in flight: what waited stays with its holder. where: p
--   (what waits), n (what arrived while the id was in flight), m (the morgue). With the last of a pile the id is out of
--   the queue, or of the morgue. The payload as it was pushed; among those of its score the first hundred are compared
--   where equal ones are kept apart.
-- include base
-- include keys
-- include ordered
-- include ordered_track
-- include ordered_leave
local id, where, score, payload = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local set = where .. ':' .. id
local DELETED = '{"ending":"deleted","reason":"deleted by hand, alone"}'
track = redis.call('HGET', meta, 'track') and tracking()

-- The payload as it is stored; nothing when it is not there with this score.
local function as_stored()
  local there = string.byte(payload) ~= 0 and redis.call('ZSCORE', base .. set, payload)
  if there and tonumber(there) == tonumber(score) then
    return payload
  end
  for _, one in ipairs(redis.call('ZRANGEBYSCORE', base .. set, score, score, 'LIMIT', 0, 100)) do
    if plain(one) == payload then
      return one
    end
  end
end

local ends = {
  p = leave_the_queue,
  n = function()
    redis.call('ZREM', next_due, id)
  end,
  m = function()
    redis.call('ZREM', base .. 'morgue', id)
    redis.call('HDEL', base .. 'merr', id)
  end,
}

if where == 'p' and redis.call('HEXISTS', busy, id) == 1 then
  return 2
end
local single = where == 'p' and redis.call('HGET', sole, id)
local found
if single then
  local same = tonumber(score_of(single)) == tonumber(score) and plain(body_of(single)) == payload
  found = same and body_of(single)
else
  found = as_stored()
end
if not found then
  return 0
end
if not single then
  redis.call('ZREM', base .. set, found)
end
if single or redis.call('EXISTS', base .. set) == 0 then
  ends[where](id)
end
if track then
  track.some(set, {found, score}, 'cancelled', DELETED, true)
  track.done()
end
return 1

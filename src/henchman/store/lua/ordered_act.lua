-- ordered_act: what people do to ids of an ordered queue, each on its own
-- KEYS queues
-- ARGV queue act failed_only floor (id)*
-- returns {statuses, last}, one status an id: 1 done, 0 there is nothing to act on, 2 it is in flight and stays as it
--   is, 3 so much waits there that a part of it was done (lowest scores first) and the rest is for another call, a
--   text: the server refused. act: revive (what is in the morgue joins what waits, due now, with a fresh budget
--   and without the old error; of an id in flight it joins what arrived meanwhile), kill (all that waits goes to the
--   morgue), delete (all that waits is gone; of an id in flight what arrived meanwhile is gone, but the id stays held
--   until its holder says how it ended: nothing may run beside it), purge (what is in the morgue is gone), run (due
--   now, in the order of before). failed_only: "1" leaves alone who did not fail. floor: run gives no time before it;
--   last is the last time that it gave.
-- include base
-- include keys
-- include ordered
-- include ordered_track
-- include ordered_leave
local act, failed_only = ARGV[2], ARGV[3] == '1'
local now, morgue, reasons = server_now(), base .. 'morgue', base .. 'merr'
local start, moved = math.max(now, tonumber(ARGV[4])), 0
local collapse, tracked = unpack(redis.call('HMGET', meta, 'collapse', 'track'))
track = tracked and tracking()

local STAGED = '{"ending":"staged","reason":"made due by hand"}'
local KILLED = '{"ending":"dead","reason":"killed by hand"}'
local MERGED = '{"ending":"merged","reason":"another one of its id has a higher score"}'
local DELETED = '{"ending":"deleted","reason":"deleted by hand"}'

-- When a pile has more than this call may still move or tell of: takes its lowest payloads out and returns them, with
-- their scores. Else nothing, and the pile counts as done.
local function part_of(set)
  local many = redis.call('ZCARD', base .. set)
  local flat, count = some_of(base .. set, math.min(many, room_left()), moved_part and 0 or 1)
  room, moved_part = room - count, true
  if count == many then
    return
  end
  if count > 0 then
    redis.call('ZREMRANGEBYRANK', base .. set, 0, count - 1)
  end
  return flat
end

local function join_arrivals(id)
  local new, dead = base .. 'n:' .. id, base .. 'm:' .. id
  if track then
    track.merge('m:' .. id, 'n:' .. id)
  end
  if collapse == 'latest' then
    local newest = redis.call('ZRANGE', new, -1, -1, 'WITHSCORES')
    local revived = redis.call('ZRANGE', dead, -1, -1, 'WITHSCORES')
    if not newest[1] or tonumber(revived[2]) > tonumber(newest[2]) then
      newest = revived
    end
    if track then
      track.only('n:' .. id, newest[1], nil, true)
    end
    redis.call('UNLINK', new, dead)
    redis.call('ZADD', new, newest[2], newest[1])
  else
    unite('m:' .. id, 'n:' .. id, true)
  end
  redis.call('ZADD', next_due, 'LT', as_text(now), id)
end

local function join_waiting(id, was_due)
  local dead = base .. 'm:' .. id
  local alone = not was_due and redis.call('ZCARD', dead) == 1
  if track then
    track.merge('m:' .. id, (alone and 'p:' or 'n:') .. id)
  end
  if alone then
    local only = redis.call('ZRANGE', dead, 0, 0, 'WITHSCORES')
    redis.call('HSET', sole, id, packed(only[2], only[1]))
    redis.call('DEL', dead)
  else
    redis.call('RENAME', dead, base .. 'n:' .. id)
    release_arrivals(id, collapse, true)
  end
  reset_failures(id)
  if not was_due or tonumber(was_due) > now then  -- who is overdue keeps its place
    redis.call('ZADD', due, as_text(now), id)
  end
  ring()
end

local acts = {}
-- A part of what is in the morgue goes back, into what waits or what arrived; nothing when all of it may at once.
local function revive_part(id, in_flight, was_due)
  local both = redis.call('EXISTS', base .. (in_flight and 'n:' or 'p:') .. id) == 1
  local part = (track or both and collapse ~= 'latest') and part_of('m:' .. id)
  if not part then
    return false
  end
  if collapse == 'latest' then  -- the last, which stays, has the highest score
    track.some('m:' .. id, part, 'cancelled', MERGED, true)
    return true
  end
  local set, single = (in_flight and 'n:' or 'p:') .. id, not in_flight and redis.call('HGET', sole, id)
  if track then
    track.some('m:' .. id, part, 'enqueued', '{"ending":"revived"}')
    track.move_records('m:' .. id, set, part)
  end
  if single then
    redis.call('HDEL', sole, id)
    redis.call('ZADD', base .. set, score_of(single), body_of(single))
  end
  add_all(set, part)
  if in_flight then
    redis.call('ZADD', next_due, 'LT', as_text(now), id)
  else
    reset_failures(id)
    if not was_due or tonumber(was_due) > now then
      redis.call('ZADD', due, as_text(now), id)
    end
    ring()
  end
  return true
end

-- A removal comes first in each, whether it finds something or not: then a full server lets the rest pass.
function acts.revive(id, in_flight, was_due)
  redis.call('HDEL', reasons, id)
  if revive_part(id, in_flight, was_due) then
    return 3
  end
  local some = redis.call('EXISTS', base .. 'm:' .. id) == 1
  if some and track then
    track.all('m:' .. id, 'enqueued', '{"ending":"revived"}')
  end
  if some and in_flight then
    join_arrivals(id)
  elseif some then
    join_waiting(id, was_due)
  end
  redis.call('ZREM', morgue, id)
  return some and 1 or 0
end
function acts.purge(id)
  redis.call('HDEL', reasons, id)
  local part = track and part_of('m:' .. id)
  if part then
    track.some('m:' .. id, part, 'cancelled', DELETED, true)
    return 3
  end
  redis.call('ZREM', morgue, id)
  if track then
    track.all('m:' .. id, 'cancelled', DELETED, true)
  end
  return redis.call('UNLINK', base .. 'm:' .. id)
end
function acts.kill(id, in_flight, was_due)
  if in_flight or not was_due then
    return in_flight and 2 or 0
  end
  redis.call('HDEL', crash, id)
  local both = redis.call('EXISTS', base .. 'm:' .. id) == 1
  local part = (both or track) and part_of('p:' .. id)
  if part then
    if track then
      track.some('p:' .. id, part, 'error', KILLED)
      track.move_records('p:' .. id, 'm:' .. id, part, false, true)
    end
    add_all('m:' .. id, part)
    redis.call('ZADD', morgue, as_text(now), id)
    redis.call('HSET', reasons, id, redis.call('HGET', errors, id) or 'killed by hand')
    return 3
  end
  if track then
    track.all('p:' .. id, 'error', KILLED)
    track.merge('p:' .. id, 'm:' .. id, true)
  end
  local single = redis.call('HGET', sole, id)
  if single then
    redis.call('ZADD', base .. 'm:' .. id, 'LT', score_of(single), body_of(single))
  elseif both then
    unite('p:' .. id, 'm:' .. id, true)
  else
    redis.call('RENAME', base .. 'p:' .. id, base .. 'm:' .. id)
  end
  redis.call('ZADD', morgue, as_text(now), id)
  redis.call('HSET', reasons, id, redis.call('HGET', errors, id) or 'killed by hand')
  leave_the_queue(id)
  return 1
end
function acts.delete(id, in_flight, was_due)
  if in_flight then
    if not failed_only then
      local part = track and part_of('n:' .. id)
      if part then
        track.some('n:' .. id, part, 'cancelled', DELETED, true)
        return 3
      end
      redis.call('UNLINK', base .. 'n:' .. id)
      redis.call('ZREM', next_due, id)
      if track then
        track.all('n:' .. id, 'cancelled', DELETED, true)
      end
    end
    return 2
  end
  local part = was_due and track and part_of('p:' .. id)
  if part then
    track.some('p:' .. id, part, 'cancelled', DELETED, true)
    return 3
  end
  if was_due then
    leave_the_queue(id)
    if track then
      track.all('p:' .. id, 'cancelled', DELETED, true)
    end
  end
  return was_due and 1 or 0
end
function acts.run(id, in_flight, was_due)
  if in_flight or not was_due then
    return in_flight and 2 or 0
  end
  if tonumber(was_due) > now then
    moved = moved + 1
    redis.call('ZADD', due, 'XX', as_text(start + moved / 1000000), id)  -- a hair apart: the order stays
    ring()
    if track then  -- of very many the first alone: what comes later is told of when it is taken
      local many = redis.call('ZCARD', base .. 'p:' .. id) > room_left()
      local flat = many and some_of(base .. 'p:' .. id, room, 0)
      if many then
        track.some('p:' .. id, flat, 'enqueued', STAGED)
        room = 0
      else
        track.all('p:' .. id, 'enqueued', STAGED)
      end
    end
  end
  return 1
end

local ids, places, status = {}, {}, {}
for at = 5, #ARGV do
  ids[at - 4] = ARGV[at]
end
local records, dues = redis.call('HMGET', busy, unpack(ids)), redis.call('ZMSCORE', due, unpack(ids))
for place in ipairs(ids) do
  places[place] = place
end
table.sort(places, function(a, b)
  local first, second = tonumber(dues[a] or 0), tonumber(dues[b] or 0)
  return first < second or (first == second and ids[a] < ids[b])
end)
for _, place in ipairs(places) do
  local id = ids[place]
  if failed_only and not redis.call('ZSCORE', retry, id) then
    status[place] = 0
  else
    local fine, told = pcall(acts[act], id, records[place], redis.call('ZSCORE', due, id))
    status[place] = fine and told or in_words(told)
  end
end
if track then
  track.done()
end
return {status, as_text(start + moved / 1000000)}
